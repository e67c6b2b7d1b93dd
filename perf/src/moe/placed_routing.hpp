// --slots: a routing of slots in place of experts, of which those that have most to do have copies.
#pragma once

#include <memory>
#include <vector>

#include "base/status.hpp"
#include "perf/src/moe/options.hpp"
#include "perf/src/moe/routing.hpp"

namespace epccl::perf::moe {

/// Of the library's placement for what `routing` sends with the most of the options' tokens, on all ranks. `node_of`: of each rank. `routing` outlives it.
/// Error: the library does not place it.
Result<std::unique_ptr<Routing>> place_routing(const Options& options, const Routing& routing,
                                               std::vector<int> node_of);

}  // namespace epccl::perf::moe
