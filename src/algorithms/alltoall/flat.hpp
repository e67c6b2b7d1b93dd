// alltoall(v), every pair directly.
#pragma once

#include "algorithms/alltoall/alltoall.hpp"

namespace epccl::algorithms {

plan::RankPlan build_flat(const topology::Cluster& cluster, const Exchange& exchange, int rank,
                          const Parameters& parameters);

}  // namespace epccl::algorithms
