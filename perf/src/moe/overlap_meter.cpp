#include "perf/src/moe/overlap_meter.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "base/clock.hpp"

namespace epccl::perf::moe {
namespace {

double cpu_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Of all threads but the calling one.
double background_cpu_seconds() {
  return cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
}

}  // namespace

/// Seconds of one product where so many follow each other, on the slowest rank.
Result<double> OverlapMeter::time_products(int products) {
  constexpr int probes = 5;
  std::vector<double> seconds;
  EPCCL_TRY(coordinator_.barrier());
  for (int i = 0; i < probes; ++i) {
    const double start = now_seconds();
    experts_.run(products);
    seconds.push_back((now_seconds() - start) / products);
  }
  return largest_of(coordinator_, summarize(seconds).median);
}

/// First roughly, then by the very number that the rough answer asks for: a core is slower after a while.
Status OverlapMeter::calibrate(double communication) {
  products_ = 16;
  for (int round = 0; round < 2; ++round) {
    EPCCL_ASSIGN(const double one, time_products(products_));
    const double wanted = options_.overlap->compute_ratio * communication;
    products_ = std::max(1, static_cast<int>(std::lround(wanted / one)));
  }
  return {};
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
  const double background = background_cpu_seconds();
  const double start = now_seconds();
  if (options_.dispatches()) EPCCL_TRY(exchange.dispatch(handle, Until::started));
  if (options_.combines()) EPCCL_TRY(exchange.combine(handle, Until::started));
  const double computes = now_seconds();
  experts_.run(products_);
  const double computed = now_seconds();
  EPCCL_TRY(handle.complete());
  times.overlapped.push_back(now_seconds() - start);
  times.compute_beneath.push_back(computed - computes);
  times.background.push_back(background_cpu_seconds() - background);
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
  EPCCL_TRY(calibrate(communication));
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
  EPCCL_ASSIGN(result.background, summary_of(coordinator_, options_, times.background));
  uint64_t wrong = 0;
  if (options_.check) {
    EPCCL_ASSIGN(wrong, check(handle, exchange, title));
  }
  EPCCL_ASSIGN(measured.wrong, total_of(coordinator_, options_, wrong));
  return measured;
}

}  // namespace epccl::perf::moe
