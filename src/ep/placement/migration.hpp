// How the weights of experts get from one placement to another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/cluster.hpp"

namespace epccl::ep {

/// A slot whose expert changes gets it from a rank that had it. Ranks overwrite their slots last, so that what is sent is what was there:
///
///   first   slots  -> arrivals    to each node that has none of an expert one copy over the network; inside nodes what they have
///   second  arrivals -> arrivals  of the same node: what came over the network, to its other ranks that need it
///   last    arrivals -> slots     of the same rank
struct Migration {
  struct Copy {
    int from_rank = 0;
    int from = 0;  // first: its slot, counted on the rank; second: its arrival
    int to_rank = 0;
    int to = 0;  // its arrival
  };
  std::vector<Copy> first,
      second;  // in one order, the same on all ranks: of the same two ranks it is that of their messages
  std::vector<std::vector<int>> arrivals;  // of each rank: the slots in which its arrivals end
  /// Slots, counted over all ranks, that stay as they are, since no rank had their expert.
  std::vector<int> lost;
};

/// Of placements that have been checked (placement.hpp).
Migration plan_migration(const topology::Cluster& cluster, int slots_per_rank, std::span<const int> before,
                         std::span<const int> after);

}  // namespace epccl::ep
