#include "perf/src/overlap/overlap_meter.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "base/clock.hpp"

namespace epccl::perf {
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
    products_of_matrices_.run(products);
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

Status OverlapMeter::communicate(Overlapped& calls, Times& times) {
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  EPCCL_TRY(calls.call());
  times.communication.push_back(now_seconds() - start);
  return {};
}

Status OverlapMeter::compute(Times& times) {
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  products_of_matrices_.run(products_);
  times.compute.push_back(now_seconds() - start);
  return {};
}

Status OverlapMeter::overlap(Overlapped& calls, Times& times) {
  EPCCL_TRY(coordinator_.barrier());
  const double background = background_cpu_seconds();
  const double start = now_seconds();
  EPCCL_TRY(calls.start());
  const double computes = now_seconds();
  products_of_matrices_.run(products_);
  const double computed = now_seconds();
  EPCCL_TRY(calls.finish());
  times.overlapped.push_back(now_seconds() - start);
  times.compute_beneath.push_back(computed - computes);
  times.background.push_back(background_cpu_seconds() - background);
  return {};
}

Status OverlapMeter::iterate(Overlapped& calls, int iteration, Times& times) {
  constexpr int kinds = 3;
  for (int i = 0; i < kinds; ++i) {
    switch ((iteration + i) % kinds) {
      case 0:
        EPCCL_TRY(communicate(calls, times));
        break;
      case 1:
        EPCCL_TRY(compute(times));
        break;
      default:
        EPCCL_TRY(overlap(calls, times));
    }
  }
  return {};
}

Status OverlapMeter::run_once(Overlapped& calls) {
  Times unused;
  return overlap(calls, unused);
}

Result<Overlap> OverlapMeter::run(Overlapped& calls, double communication) {
  EPCCL_TRY(calibrate(communication));
  Times times, warm_up;
  for (int i = 0; i < options_.warmup; ++i) EPCCL_TRY(iterate(calls, i, warm_up));
  const double one = communication * (1 + 2 * options_.overlap->compute_ratio);
  Overlap result;
  result.products = products_;
  EPCCL_ASSIGN(result.iterations, choose_iterations(coordinator_, options_, one));
  for (int i = 0; i < result.iterations; ++i) EPCCL_TRY(iterate(calls, i, times));

  EPCCL_ASSIGN(result.communication, summary_of(coordinator_, options_, times.communication));
  EPCCL_ASSIGN(result.compute, summary_of(coordinator_, options_, times.compute));
  EPCCL_ASSIGN(result.overlapped, summary_of(coordinator_, options_, times.overlapped));
  EPCCL_ASSIGN(result.compute_beneath, summary_of(coordinator_, options_, times.compute_beneath));
  EPCCL_ASSIGN(result.background, summary_of(coordinator_, options_, times.background));
  return result;
}

}  // namespace epccl::perf
