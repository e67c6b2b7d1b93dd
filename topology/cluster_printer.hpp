// A cluster for people: where every rank stands, what it uses, and the rails.
#pragma once

#include <string>

#include "topology/cluster.hpp"
#include "topology/machine.hpp"
#include "topology/rail_plan.hpp"

namespace epccl::topology {

/// A row per rank (node, local position, rank, GPU, nearest NICs) and a line per rail, for nodes that are all
/// like `machine`; `plan` is for as many ranks as the largest node has. Says when rails share a NIC.
std::string format_cluster(const Cluster& cluster, const Machine& machine, const RailPlan& plan);

}  // namespace epccl::topology
