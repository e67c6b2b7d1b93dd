// Events of host streams.
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"

using namespace epccl::api;
using epccl::Code;
using epccl::Status;

epcclResult_t epcclEventCreate(epcclEvent_t* event) {
  return guarded([&]() -> Status {
    if (event == nullptr) return {Code::invalid_argument, "event is NULL"};
    *event = nullptr;
    *event = epccl::device::create_event();
    return {};
  });
}

epcclResult_t epcclEventRecord(epcclEvent_t event, epcclStream_t stream) {
  return guarded([&]() -> Status {
    EPCCL_ASSIGN(const auto found, find_event(event));
    EPCCL_ASSIGN(epccl::device::HostStream * queue, find_stream(stream));
    found->record(queue);
    return {};
  });
}

epcclResult_t epcclEventQuery(epcclEvent_t event) {
  epcclResult_t result = epcclSuccess;
  const epcclResult_t checked = guarded([&]() -> Status {
    EPCCL_ASSIGN(const auto found, find_event(event));
    if (!found->complete()) result = epcclInProgress;
    return {};
  });
  return checked == epcclSuccess ? result : checked;
}

epcclResult_t epcclEventSynchronize(epcclEvent_t event) {
  return guarded([&]() -> Status {
    EPCCL_ASSIGN(const auto found, find_event(event));
    found->synchronize();
    return {};
  });
}

epcclResult_t epcclStreamWaitEvent(epcclStream_t stream, epcclEvent_t event) {
  return guarded([&]() -> Status {
    EPCCL_ASSIGN(epccl::device::HostStream * queue, find_stream(stream));
    EPCCL_ASSIGN(const auto found, find_event(event));
    found->hold_back(queue);
    return {};
  });
}

epcclResult_t epcclEventDestroy(epcclEvent_t event) {
  return guarded([&]() -> Status {
    EPCCL_TRY(find_event(event).take_status());
    epccl::device::destroy_event(event);
    return {};
  });
}
