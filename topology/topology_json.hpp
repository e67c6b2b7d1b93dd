// Machines and clusters as JSON, for programs.
#pragma once

#include <nlohmann/json.hpp>

#include "topology/cluster.hpp"
#include "topology/machine.hpp"

namespace epccl::topology {

/// Everything a Machine holds; references are positions in the arrays of the same document. GPUs also have
/// `nearest_nics`, `nic` (the one assigned) and `paths` (classes to all GPUs, then all NICs).
nlohmann::ordered_json machine_json(const Machine& machine);

/// `ranks` (node, local, gpu, nic) in rank order, and `rails`, for nodes that are all like `machine`.
nlohmann::ordered_json cluster_json(const Cluster& cluster, const Machine& machine);

}  // namespace epccl::topology
