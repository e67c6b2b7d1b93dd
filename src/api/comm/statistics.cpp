// What a communicator tells about its traffic.
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"

namespace epccl::api {
namespace {

Status get_statistics(epcclComm_t comm, epcclStatistics_t* out) {
  EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
  EPCCL_ASSIGN(const CommPtr communicator, handle->communicator());
  if (out == nullptr) return {Code::invalid_argument, "statistics is NULL"};
  // Versioned by size; all fields are in the first version.
  if (out->size < sizeof(epcclStatistics_t) || out->magic != EPCCL_STATISTICS_MAGIC)
    return error(Code::invalid_argument,
                 "statistics has size {} and magic {:#x}: use EPCCL_STATISTICS_INITIALIZER", out->size,
                 out->magic);
  const auto [messages, work, messages_carried, bytes_carried] = communicator->network_statistics();
  out->connections = messages.connections;
  out->messagesSent = messages.messages_sent + messages_carried;
  out->bytesSent = messages.bytes_sent + bytes_carried;
  out->messagesReceived = messages.messages_received;
  out->bytesReceived = messages.bytes_received;
  out->sendRequests = work.sends;
  out->writeRequests = work.writes;
  out->signalRequests = work.signals;
  out->completionsRequested = work.signalled;
  out->sendCompletions = work.send_completions;
  out->receiveCompletions = work.receive_completions;
  out->registrations = work.registrations;
  out->railsLost = work.rails_lost;
  out->requestsMoved = work.moved;
  out->messagesCarried = messages_carried;
  return {};
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclCommGetStatistics(epcclComm_t comm, epcclStatistics_t* statistics) {
  return guarded([&] { return get_statistics(comm, statistics); });
}
