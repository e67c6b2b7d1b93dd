// alltoall(v) in two stages: along rails between nodes, then inside the node. See two_stage_layout.hpp for who carries what.
#pragma once

#include "algorithms/alltoall/alltoall.hpp"

namespace epccl::algorithms {

plan::RankPlan build_two_stage(const topology::Cluster& cluster, const Exchange& exchange, int rank,
                               const Parameters& parameters);

}  // namespace epccl::algorithms
