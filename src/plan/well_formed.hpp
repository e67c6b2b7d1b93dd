// The checks of a plan that need only one step at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "plan/plan.hpp"

namespace epccl::plan {

/// "plan flat: rank 3 step 17 (send to=6 ...): <what>", code internal_error: a wrong plan is the library's
/// mistake.
Status step_error(const Plan& plan, int rank, uint32_t index, const std::string& what);

/// Ranks, offsets, slots and dependencies in range; dependencies refer to earlier steps; copies stay inside
/// the node, messages leave it; nothing writes an input; rows of a copy do not overlap in the destination;
/// lists, sums and sources lie inside the tables, their rows inside the buffers, and no row is written twice.
/// `input_sizes[rank]` is how many bytes of input the rank has. The first violation, by rank and step, is the
/// error.
Status well_formed(const Plan& plan, std::span<const uint64_t> input_sizes);

/// As above, without limits on inputs: what a reader of unproved plans needs to index safely.
Status well_formed(const Plan& plan);

/// How many bytes of its input each rank must have for what is expected; an error (invalid_argument) when
/// that names a rank that is not there or its ranges wrap around.
Result<std::vector<uint64_t>> input_sizes(const Plan& plan, std::span<const Transfer> expected,
                                          std::span<const RowSum> sums);

}  // namespace epccl::plan
