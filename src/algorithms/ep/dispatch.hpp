// The plans of dispatch and combine.
//
//   dispatch   source                relay                           owner of an expert
//              input --gather--> ring --send--> ring --rows by index--> output
//   combine    source                relay                           owner of an expert
//              output <--sum-- ring <--send-- ring <--sum of rows----- input
//
// Relays do all the work inside their node; the others only say that their buffers are ready, and wait until everybody is
// through with them. The second hop of one block runs under the first hop of the next. Inside the source's node a rank whose output
// the others cannot map fetches its rows from their inputs.
#pragma once

#include "algorithms/ep/token_streams.hpp"
#include "plan/plan.hpp"
#include "topology/cluster.hpp"

namespace epccl::algorithms {

plan::RankPlan build_dispatch(const topology::Cluster& cluster, const TokenExchange& exchange, int rank,
                              const TokenParameters& parameters);

plan::RankPlan build_combine(const topology::Cluster& cluster, const TokenExchange& exchange, int rank,
                             const TokenParameters& parameters);

}  // namespace epccl::algorithms
