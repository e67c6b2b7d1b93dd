// Times of one size: over ranks first, then over iterations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "perf/src/split.hpp"

namespace epccl::perf {

/// How the ranks' times of one iteration become one; the numbers are those of nccl-tests' -a.
enum class Average : uint8_t { rank0 = 0, mean = 1, minimum = 2, maximum = 3 };

/// `times[r * iterations + i]`: rank r's time of iteration i. One time per iteration.
std::vector<double> over_ranks(std::span<const double> times, size_t ranks, Average average);

/// Of the times of the iterations, in their unit. The median of an even number is the mean of the two in the middle. Percentiles are
/// nearest-rank: below 100 iterations p99 is the largest.
struct Summary {
  double median = 0, p99 = 0, minimum = 0, p95 = 0;
};
Summary summarize(std::vector<double> times);

/// What came of measuring one call.
struct Measurement {
  Summary seconds;
  int iterations = 0;
  std::optional<uint64_t> wrong;    // elements, of all ranks; empty: not checked
  std::optional<Split> split = {};  // --split
};

/// How many iterations of `seconds` each fit into `budget` seconds: 7 to 400.
int iterations_within(double budget, double seconds);

}  // namespace epccl::perf
