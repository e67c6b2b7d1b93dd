#include "perf/src/statistics.hpp"

#include <algorithm>
#include <numeric>

namespace epccl::perf {

std::vector<double> over_ranks(std::span<const double> times, size_t ranks, Average average) {
  const size_t iterations = times.size() / ranks;
  std::vector<double> combined(iterations);
  std::vector<double> one(ranks);
  for (size_t i = 0; i < iterations; ++i) {
    for (size_t r = 0; r < ranks; ++r) one[r] = times[r * iterations + i];
    switch (average) {
      case Average::rank0:
        combined[i] = one[0];
        break;
      case Average::mean:
        combined[i] = std::accumulate(one.begin(), one.end(), 0.0) / static_cast<double>(ranks);
        break;
      case Average::minimum:
        combined[i] = *std::min_element(one.begin(), one.end());
        break;
      case Average::maximum:
        combined[i] = *std::max_element(one.begin(), one.end());
        break;
    }
  }
  return combined;
}

Summary summarize(std::vector<double> times) {
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  const auto percentile = [&](size_t p) { return times[(p * n + 99) / 100 - 1]; };
  const double median = n % 2 == 1 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
  return {median, percentile(99), times.front(), percentile(95)};
}

int iterations_within(double budget, double seconds) {
  constexpr double fewest = 7, most = 400;
  return static_cast<int>(std::clamp(budget / (seconds + 1e-9), fewest, most));
}

}  // namespace epccl::perf
