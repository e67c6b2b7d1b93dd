// Where the time of a communicator's calls goes.
#include "epccl/profile.h"

#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"

namespace epccl::api {
namespace {

Status get_call_times(epcclComm_t comm, epcclCallTimes_t* out) {
  EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
  EPCCL_ASSIGN(const CommPtr communicator, handle->communicator());
  if (out == nullptr) return {Code::invalid_argument, "times is NULL"};
  // Versioned by size; all fields are in the first version.
  if (out->size < sizeof(epcclCallTimes_t) || out->magic != EPCCL_CALL_TIMES_MAGIC)
    return error(Code::invalid_argument,
                 "times has size {} and magic {:#x}: use EPCCL_CALL_TIMES_INITIALIZER", out->size,
                 out->magic);
  EPCCL_ASSIGN(const runtime::CallTimes::Sums sums, communicator->call_times());
  const device::TimeSplit& seconds = sums.seconds;
  out->calls = sums.calls;
  out->total = seconds.total;
  out->kernel = seconds.kernel;
  out->copy = seconds.copy;
  out->signal = seconds.signal;
  out->host = seconds.host();
  return {};
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclCommMeasureCalls(epcclComm_t comm, int on) {
  return guarded([&]() -> epccl::Status {
    EPCCL_ASSIGN(const CommPtr communicator, find_usable_communicator(comm));
    communicator->measure_calls(on != 0);
    return {};
  });
}

epcclResult_t epcclCommGetCallTimes(epcclComm_t comm, epcclCallTimes_t* times) {
  return guarded([&] { return get_call_times(comm, times); });
}
