#include "perf/src/over_ranks.hpp"

#include <algorithm>
#include <numeric>

namespace epccl::perf {

Result<Summary> summary_of(Coordinator& coordinator, const MeasuringOptions& options,
                           const std::vector<double>& mine) {
  EPCCL_ASSIGN(const std::vector<double> all, coordinator.gather(std::span<const double>(mine)));
  return summarize(over_ranks(all, static_cast<size_t>(coordinator.ranks()), options.average));
}

Result<std::optional<uint64_t>> total_of(Coordinator& coordinator, const MeasuringOptions& options,
                                         uint64_t wrong_here) {
  if (!options.check) return std::optional<uint64_t>();
  EPCCL_ASSIGN(const std::vector<uint64_t> wrong,
               coordinator.gather(std::span<const uint64_t>(&wrong_here, 1)));
  return std::optional<uint64_t>(std::accumulate(wrong.begin(), wrong.end(), uint64_t{0}));
}

Result<double> largest_of(Coordinator& coordinator, double mine) {
  EPCCL_ASSIGN(const std::vector<double> all, coordinator.gather(std::span<const double>(&mine, 1)));
  return *std::max_element(all.begin(), all.end());
}

Result<int> choose_iterations(Coordinator& coordinator, const MeasuringOptions& options, double seconds) {
  if (!options.budget) return options.iterations;
  EPCCL_ASSIGN(const double slowest, largest_of(coordinator, seconds));
  return iterations_within(*options.budget, slowest);
}

}  // namespace epccl::perf
