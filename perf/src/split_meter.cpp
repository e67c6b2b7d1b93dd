#include "perf/src/split_meter.hpp"

#include <array>

#include "base/clock.hpp"
#include "epccl/profile.h"

namespace epccl::perf {
namespace {

Status measure_calls(epcclComm_t comm, bool on) {
  return api_status("epcclCommMeasureCalls", epcclCommMeasureCalls(comm, on ? 1 : 0), comm);
}

Result<epcclCallTimes_t> call_times(epcclComm_t comm) {
  epcclCallTimes_t times = EPCCL_CALL_TIMES_INITIALIZER;
  EPCCL_TRY(api_status("epcclCommGetCallTimes", epcclCommGetCallTimes(comm, &times), comm));
  return times;
}

}  // namespace

Result<Split> measure_split(Coordinator& coordinator, epcclComm_t comm, int iterations,
                            const std::function<Status()>& call) {
  EPCCL_TRY(measure_calls(comm, true));
  EPCCL_TRY(coordinator.barrier());
  EPCCL_TRY(call());  // a GPU's events are made
  EPCCL_TRY(call_times(comm).take_status());
  double total = 0;
  for (int i = 0; i < iterations; ++i) {
    EPCCL_TRY(coordinator.barrier());
    const double start = now_seconds();
    EPCCL_TRY(call());
    total += now_seconds() - start;
  }
  EPCCL_ASSIGN(const epcclCallTimes_t mine, call_times(comm));
  EPCCL_TRY(measure_calls(comm, false));
  const std::array<double, 4> parts{total, mine.kernel, mine.copy, mine.signal};
  EPCCL_ASSIGN(const std::vector<double> all, coordinator.gather(std::span<const double>(parts)));
  std::array<double, 4> mean{};
  for (size_t i = 0; i < all.size(); ++i)
    mean[i % mean.size()] += all[i] / static_cast<double>(coordinator.ranks() * iterations);
  return Split{mean[0], mean[1], mean[2], mean[3], iterations};
}

}  // namespace epccl::perf
