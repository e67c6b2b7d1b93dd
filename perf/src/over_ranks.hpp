// Every rank's part of a result, as one.
#pragma once

#include <optional>
#include <vector>

#include "perf/src/coordinator.hpp"
#include "perf/src/measuring_options.hpp"

namespace epccl::perf {

/// Of times by iteration, as many on every rank. Collective.
Result<Summary> summary_of(Coordinator& coordinator, const MeasuringOptions& options,
                           const std::vector<double>& mine);

/// Wrong elements of all ranks; empty: not checked. Collective.
Result<std::optional<uint64_t>> total_of(Coordinator& coordinator, const MeasuringOptions& options,
                                         uint64_t wrong_here);

/// The same on every rank: so many as take no rank longer than the budget. `seconds`: one, on this rank.
/// Collective.
Result<int> choose_iterations(Coordinator& coordinator, const MeasuringOptions& options, double seconds);

/// Collective.
Result<double> largest_of(Coordinator& coordinator, double mine);

}  // namespace epccl::perf
