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
  EPCCL_ASSIGN(const epcclStatistics_t given,
               read_sized("statistics", *out, zeros, "EPCCL_STATISTICS_INITIALIZER"));
  const auto [messages, work, messages_carried, bytes_carried] = communicator->statistics();
  // Each by its name, so that the compiler misses the one that is forgotten.
  const epcclStatistics_t all = {.size = given.size,
                                 .magic = given.magic,
                                 .version = given.version,
                                 .connections = messages.connections,
                                 .messagesSent = messages.messages_sent + messages_carried,
                                 .bytesSent = messages.bytes_sent + bytes_carried,
                                 .messagesReceived = messages.messages_received,
                                 .bytesReceived = messages.bytes_received,
                                 .sendRequests = work.sends,
                                 .writeRequests = work.writes,
                                 .signalRequests = work.signals,
                                 .completionsRequested = work.signalled,
                                 .sendCompletions = work.send_completions,
                                 .receiveCompletions = work.receive_completions,
                                 .registrations = work.registrations,
                                 .railsLost = work.rails_lost,
                                 .requestsMoved = work.moved,
                                 .messagesCarried = messages_carried};
  write_sized(out, all);
  return {};
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclCommGetStatistics(epcclComm_t comm, epcclStatistics_t* statistics) {
  return guarded([&] { return get_statistics(comm, statistics); });
}
