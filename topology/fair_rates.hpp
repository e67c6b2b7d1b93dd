// Max-min fair rates of flows over links.
#pragma once

#include <cstddef>
#include <vector>

namespace epccl::topology {

/// flows[f] lists the links that flow f crosses, none twice; capacities are positive, infinite where they do not limit.
/// Returns each flow's rate: the links whose equal share is the smallest give it to their flows, what those leave of
/// other links goes to the others. 0 for a flow that nothing limits.
std::vector<double> fair_rates(const std::vector<std::vector<size_t>>& flows,
                               const std::vector<double>& capacities);

}  // namespace epccl::topology
