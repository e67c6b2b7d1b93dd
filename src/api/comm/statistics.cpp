// What a communicator tells about its traffic.
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"
#include "api/handles/sized_struct.hpp"

namespace epccl::api {
namespace {

Status get_statistics(epcclComm_t comm, epcclStatistics_t* out) {
  EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
  EPCCL_ASSIGN(const CommPtr communicator, handle->communicator());
  if (out == nullptr) return {Code::invalid_argument, "statistics is NULL"};
  const epcclStatistics_t zeros = EPCCL_STATISTICS_INITIALIZER;
  EPCCL_ASSIGN(epcclStatistics_t all, read_sized("statistics", *out, zeros, "EPCCL_STATISTICS_INITIALIZER"));
  const auto [messages, work, messages_carried, bytes_carried] = communicator->network_statistics();
  all.connections = messages.connections;
  all.messagesSent = messages.messages_sent + messages_carried;
  all.bytesSent = messages.bytes_sent + bytes_carried;
  all.messagesReceived = messages.messages_received;
  all.bytesReceived = messages.bytes_received;
  all.sendRequests = work.sends;
  all.writeRequests = work.writes;
  all.signalRequests = work.signals;
  all.completionsRequested = work.signalled;
  all.sendCompletions = work.send_completions;
  all.receiveCompletions = work.receive_completions;
  all.registrations = work.registrations;
  all.railsLost = work.rails_lost;
  all.requestsMoved = work.moved;
  all.messagesCarried = messages_carried;
  write_sized(out, all);
  return {};
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclCommGetStatistics(epcclComm_t comm, epcclStatistics_t* statistics) {
  return guarded([&] { return get_statistics(comm, statistics); });
}
