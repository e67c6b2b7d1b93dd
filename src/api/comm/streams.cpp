// Host streams.
#include "api/groups/group.hpp"
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"

using namespace epccl::api;
using epccl::Code;
using epccl::Status;

epcclResult_t epcclStreamCreate(epcclStream_t* stream) {
  return guarded([&]() -> Status {
    if (stream == nullptr) return {Code::invalid_argument, "stream is NULL"};
    *stream = epccl::device::create_stream();
    return {};
  });
}

epcclResult_t epcclStreamSynchronize(epcclStream_t stream) {
  return guarded([&]() -> Status {
    EPCCL_ASSIGN(epccl::device::HostStream * queue, find_stream(stream));
    return queue == nullptr ? Status{} : queue->synchronize();
  });
}

epcclResult_t epcclStreamQuery(epcclStream_t stream) {
  epcclResult_t result = epcclSuccess;
  const epcclResult_t checked = guarded([&]() -> Status {
    EPCCL_ASSIGN(const epccl::device::HostStream* queue, find_stream(stream));
    if (queue != nullptr && !queue->idle()) result = epcclInProgress;
    return {};
  });
  return checked == epcclSuccess ? result : checked;
}

int epcclIsStream(epcclStream_t stream) {
  return guarded_or(0, [&] { return epccl::device::find_stream(stream) != nullptr ? 1 : 0; });
}

epcclResult_t epcclStreamDestroy(epcclStream_t stream) {
  return guarded([&]() -> Status {
    EPCCL_ASSIGN(const epccl::device::HostStream* queue, find_stream(stream));
    if (queue == nullptr) return {Code::invalid_argument, "stream is NULL"};
    if (group_uses(queue))
      return {Code::invalid_usage, "the open group has calls on the stream, which begin at epcclGroupEnd()"};
    epccl::device::destroy_stream(stream);
    return {};
  });
}
