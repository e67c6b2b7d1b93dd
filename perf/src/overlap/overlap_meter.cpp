#include "perf/src/overlap/overlap_meter.hpp"

#include <time.h>

#include <algorithm>
#include <tuple>

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
    EPCCL_TRY(matrix_products_.run(products));
    seconds.push_back((now_seconds() - start) / products);
  }
  return largest_of(coordinator_, summarize(seconds).median);
}

/// First roughly, then by the very number that the rough answer asks for: a core is slower after a while. Beneath a product that goes on
/// for much longer than the calls not even those that stop it altogether would be seen.
Status OverlapMeter::calibrate(double communication, bool queues) {
  products_ = 16;
  for (int round = 0; round < 2; ++round) {
    EPCCL_ASSIGN(const double one, time_products(products_));
    std::tie(products_, calls_) = balance(one, communication, options_.overlap->compute_ratio, queues);
  }
  return {};
}

Status OverlapMeter::communicate(Overlapped& calls, Times& times) {
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  if (calls_ == 1) {
    EPCCL_TRY(calls.call());
  } else {
    for (int i = 0; i < calls_; ++i) EPCCL_TRY(calls.start());
    EPCCL_TRY(calls.finish());
  }
  times.communication.push_back(now_seconds() - start);
  return {};
}

Status OverlapMeter::compute() {
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  EPCCL_TRY(matrix_products_.run(products_));
  compute_.push_back(now_seconds() - start);
  return {};
}

Status OverlapMeter::overlap(Overlapped& calls, int times_to_start, Times& times) {
  EPCCL_TRY(coordinator_.barrier());
  const double background = background_cpu_seconds();
  const double start = now_seconds();
  for (int i = 0; i < times_to_start; ++i) EPCCL_TRY(calls.start());
  const double computes = now_seconds();
  EPCCL_TRY(matrix_products_.run(products_));
  const double computed = now_seconds();
  EPCCL_TRY(calls.finish());
  times.overlapped.push_back(now_seconds() - start);
  times.compute_beneath.push_back(computed - computes);
  times.background.push_back(background_cpu_seconds() - background);
  return {};
}

Status OverlapMeter::iterate(std::span<Overlapped* const> subjects, int iteration,
                             std::vector<Times>& times) {
  const size_t parts = 1 + 2 * subjects.size();
  for (size_t i = 0; i < parts; ++i) {
    const size_t part = (static_cast<size_t>(iteration) + i) % parts;
    if (part == 0) {
      EPCCL_TRY(compute());
      continue;
    }
    const size_t subject = (part - 1) / 2;
    if (part % 2 == 1)
      EPCCL_TRY(communicate(*subjects[subject], times[subject]));
    else
      EPCCL_TRY(overlap(*subjects[subject], calls_, times[subject]));
  }
  return {};
}

Status OverlapMeter::run_once(Overlapped& calls) {
  Times unused;
  return overlap(calls, 1, unused);  // a second sum in place would be another one
}

Result<std::vector<double>> OverlapMeter::by_iteration(const std::vector<double>& mine) {
  EPCCL_ASSIGN(const std::vector<double> all, coordinator_.gather(std::span<const double>(mine)));
  return over_ranks(all, static_cast<size_t>(coordinator_.ranks()), options_.average);
}

Result<Overlap> OverlapMeter::result_of(const Times& times, std::span<const double> compute) {
  const auto more_than_compute = [&](std::vector<double> seconds) {
    for (size_t i = 0; i < seconds.size(); ++i) seconds[i] -= compute[i];
    return summarize(std::move(seconds));
  };
  Overlap result;
  result.products = products_;
  result.calls = calls_;
  result.iterations = static_cast<int>(compute.size());
  result.compute = summarize({compute.begin(), compute.end()});
  EPCCL_ASSIGN(result.communication, summary_of(coordinator_, options_, times.communication));
  EPCCL_ASSIGN(result.background, summary_of(coordinator_, options_, times.background));
  EPCCL_ASSIGN(const std::vector<double> overlapped, by_iteration(times.overlapped));
  EPCCL_ASSIGN(const std::vector<double> beneath, by_iteration(times.compute_beneath));
  result.overlapped = summarize(overlapped);
  result.compute_beneath = summarize(beneath);
  result.lost = more_than_compute(overlapped);
  result.slower = more_than_compute(beneath);
  return result;
}

Result<std::vector<Overlap>> OverlapMeter::run(std::span<Overlapped* const> subjects, double communication) {
  const bool queues = std::ranges::all_of(subjects, [](const Overlapped* each) { return each->queues(); });
  EPCCL_TRY(calibrate(communication, queues));
  std::vector<Times> times(subjects.size());
  for (int i = 0; i < options_.warmup; ++i) EPCCL_TRY(iterate(subjects, i, times));
  times.assign(subjects.size(), {});
  compute_.clear();
  const double ratio = options_.overlap->compute_ratio;
  const double one = calls_ * communication * (ratio + static_cast<double>(subjects.size()) * (1 + ratio));
  EPCCL_ASSIGN(const int iterations, choose_iterations(coordinator_, options_, one));
  for (int i = 0; i < iterations; ++i) EPCCL_TRY(iterate(subjects, i, times));

  EPCCL_ASSIGN(const std::vector<double> compute, by_iteration(compute_));
  std::vector<Overlap> results;
  for (const Times& each : times) {
    EPCCL_ASSIGN(results.emplace_back(), result_of(each, compute));
  }
  return results;
}

}  // namespace epccl::perf
