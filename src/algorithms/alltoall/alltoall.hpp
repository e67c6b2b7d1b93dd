// Plan builders for alltoall and alltoallv: pure functions of (cluster, exchange, parameters).
//
//   flat       every pair directly: inside the node by copies, across nodes one message a pair.
//   two_stage  across nodes along rails, one message per destination node; then inside the node. The relay's copy to the
//              node's other ranks of one round runs under the network transfer of the next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/alltoall/algorithm.hpp"
#include "algorithms/alltoall/exchange.hpp"
#include "base/status.hpp"
#include "plan/plan.hpp"
#include "topology/cluster.hpp"

namespace epccl::algorithms {

/// Constants of a build. Every rank must use the same.
struct Parameters {
  uint64_t chunk_bytes = 128 << 10;  // a network message of two_stage, at most (may be as small as 1)
  uint64_t send_window = 512 << 10;  // bytes a rank has under way to other nodes, at most; or one message
  uint64_t eager_limit = 8 << 10;    // blocks inside a node up to this size go through scratch
  uint64_t scratch_bytes = 8 << 20;  // a rank's scratch, at most
  bool direct = true;                // ranks of a node can read each other's input
  int carriers = 0;   // two_stage: ranks of a node that share the messages to one other node; 0 = all
  bool push = false;  // two_stage: relays write into the others' outputs (needs direct), so that those
                      // need not wake up for every round
};

/// Whether `parameters` can run this at all (scratch large enough for its smallest pieces); the error says what to raise.
Status check(const topology::Cluster& cluster, const Parameters& parameters);

/// One rank's part.
plan::RankPlan build_alltoall(Algorithm algorithm, const topology::Cluster& cluster, const Exchange& exchange,
                              int rank, const Parameters& parameters);

/// Every rank's part; `exchange` must know everything.
plan::Plan build_alltoall_everywhere(Algorithm algorithm, const topology::Cluster& cluster,
                                     const Exchange& exchange, const Parameters& parameters);

}  // namespace epccl::algorithms
