// The sentences of a rail plan.
#pragma once

#include <string>
#include <vector>

#include "topology/rail_plan.hpp"

namespace epccl::topology {

/// "mlx5_0", "mlx5_0 and mlx5_1", "mlx5_0, mlx5_1 and mlx5_2".
std::string nic_names(const Machine& machine, const std::vector<int>& nics);

/// Why a place has its NICs; the place is otherwise complete.
std::string explain_place(const Machine& machine, const RailPlan& plan, const RailPlace& place);
/// Why nobody uses a NIC.
std::string explain_unused(const Machine& machine, int nic);
/// What is not known of the machine, or not even in the plan.
std::vector<std::string> explain_plan(const Machine& machine, const RailPlan& plan);

}  // namespace epccl::topology
