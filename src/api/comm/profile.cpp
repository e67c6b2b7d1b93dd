// Where the time of a communicator's calls goes.
#include "epccl/profile.h"

#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"
#include "api/handles/sized_struct.hpp"

namespace epccl::api {
namespace {

Status get_call_times(epcclComm_t comm, epcclCallTimes_t* out) {
  EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
  EPCCL_ASSIGN(const CommPtr communicator, handle->communicator());
  if (out == nullptr) return {Code::invalid_argument, "times is NULL"};
  const epcclCallTimes_t zeros = EPCCL_CALL_TIMES_INITIALIZER;
  EPCCL_ASSIGN(epcclCallTimes_t times, read_sized("times", *out, zeros, "EPCCL_CALL_TIMES_INITIALIZER"));
  EPCCL_ASSIGN(const runtime::CallTimes::Sums sums, communicator->call_times());
  const device::TimeSplit& seconds = sums.seconds;
  times.calls = sums.calls;
  times.total = seconds.total;
  times.kernel = seconds.kernel;
  times.copy = seconds.copy;
  times.signal = seconds.signal;
  times.host = seconds.host();
  write_sized(out, times);
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
