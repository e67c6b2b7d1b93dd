#include "perf/src/moe/overlap_meter.hpp"

#include <algorithm>
#include <cmath>

#include "base/clock.hpp"

namespace epccl::perf::moe {

Result<int> OverlapMeter::calibrate(double communication) {
  constexpr int probes = 21, products_of_one = 16;
  std::vector<double> seconds;
  for (int i = 0; i < probes; ++i) {
    const double start = now_seconds();
    experts_.run(products_of_one);
    seconds.push_back((now_seconds() - start) / products_of_one);
  }
  EPCCL_ASSIGN(const double one, largest_of(coordinator_, summarize(seconds).median));
  return std::max(1, static_cast<int>(std::lround(options_.overlap->compute_ratio * communication / one)));
}

Status OverlapMeter::communicate(EpHandle& handle, const Exchange& exchange, Times& times) {
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  if (options_.dispatches()) EPCCL_TRY(exchange.dispatch(handle));
  if (options_.combines()) EPCCL_TRY(exchange.combine(handle));
  times.communication.push_back(now_seconds() - start);
  return {};
}

Status OverlapMeter::compute(Times& times) {
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  experts_.run(products_);
  times.compute.push_back(now_seconds() - start);
  return {};
}

Status OverlapMeter::overlap(EpHandle& handle, const Exchange& exchange, Times& times) {
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  if (options_.dispatches()) EPCCL_TRY(exchange.dispatch(handle, Until::started));
  if (options_.combines()) EPCCL_TRY(exchange.combine(handle, Until::started));
  const double computes = now_seconds();
  experts_.run(products_);
  const double computed = now_seconds();
  EPCCL_TRY(handle.complete());
  times.overlapped.push_back(now_seconds() - start);
  times.compute_beneath.push_back(computed - computes);
  return {};
}

Status OverlapMeter::iterate(EpHandle& handle, const Exchange& exchange, int iteration, Times& times) {
  constexpr int kinds = 3;
  for (int i = 0; i < kinds; ++i) {
    switch ((iteration + i) % kinds) {
      case 0:
        EPCCL_TRY(communicate(handle, exchange, times));
        break;
      case 1:
        EPCCL_TRY(compute(times));
        break;
      default:
        EPCCL_TRY(overlap(handle, exchange, times));
    }
  }
  return {};
}

Result<uint64_t> OverlapMeter::check(EpHandle& handle, Exchange& exchange, const std::string& title) {
  constexpr uint64_t number = 1'000'000;  // no other measurement's
  Times unused;
  exchange.prepare(number);
  EPCCL_TRY(overlap(handle, exchange, unused));
  return exchange.check(number, title + ", overlapped");
}

Result<OverlapMeasurement> OverlapMeter::run(EpHandle& handle, Exchange& exchange, double communication,
                                             const std::string& title) {
  EPCCL_ASSIGN(products_, calibrate(communication));
  Times times, warm_up;
  for (int i = 0; i < options_.warmup; ++i) EPCCL_TRY(iterate(handle, exchange, i, warm_up));
  const double one = communication * (1 + 2 * options_.overlap->compute_ratio);
  OverlapMeasurement measured;
  Overlap& result = measured.overlap;
  result.products = products_;
  EPCCL_ASSIGN(result.iterations, choose_iterations(coordinator_, options_, one));
  for (int i = 0; i < result.iterations; ++i) EPCCL_TRY(iterate(handle, exchange, i, times));

  EPCCL_ASSIGN(result.communication, summary_of(coordinator_, options_, times.communication));
  EPCCL_ASSIGN(result.compute, summary_of(coordinator_, options_, times.compute));
  EPCCL_ASSIGN(result.overlapped, summary_of(coordinator_, options_, times.overlapped));
  EPCCL_ASSIGN(result.compute_beneath, summary_of(coordinator_, options_, times.compute_beneath));
  uint64_t wrong = 0;
  if (options_.check) {
    EPCCL_ASSIGN(wrong, check(handle, exchange, title));
  }
  EPCCL_ASSIGN(measured.wrong, total_of(coordinator_, options_, wrong));
  return measured;
}

}  // namespace epccl::perf::moe
