// alltoallv on one node, where a rank knows its own counts only. Two plans, built once and fitted to each call:
//
//   rank A                                        rank B
//   what it tells -> head of A's scratch                                         (runtime::Call::tells)
//   block for B -> slot B of A's scratch                                         if it fits into a slot
//   post  slot 0, value 1             ----->      wait;  hears A;  copy  slot B -> output, as many bytes as B expects
//
// Then all ranks have heard all counts, so they know alike whether they agree, and whether there are larger blocks, of any rank:
//
//   post  slot 0, value 1             ----->      wait;  copy  A.input -> output
//   wait                              <-----      post  slot 1, value 1          A's input is its own again
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "topology/cluster.hpp"

namespace epccl::algorithms {

/// What a rank tells the ranks of its node about its blocks, an entry a peer.
struct BlockEntry {
  uint64_t sent_bytes = 0;
  uint64_t input_offset = 0;
  uint64_t expected_bytes = 0;  // from that peer
};

/// A rank's plan with places for blocks: built once, fitted to each call.
struct FittedPlan {
  plan::RankPlan plan;
  std::vector<uint32_t> sent,
      received;  // the step of each peer's block; this rank's own is the same step in both
};

/// Blocks of up to `slot_bytes`. `head_bytes`: of each rank's scratch, kept free. One node. Scratch needed: head + ranks * slot bytes.
FittedPlan build_small_blocks(const topology::Cluster& cluster, int rank, uint64_t head_bytes,
                              uint64_t slot_bytes);
/// Blocks of any length, from input to output. `sent` has nothing but this rank's own.
FittedPlan build_large_blocks(const topology::Cluster& cluster, int rank);

/// Fits a step to a block; bytes 0: there is none, or it travels by the other plan.
void fit_sent(plan::Step& step, uint64_t bytes, uint64_t input_offset);
void fit_received(plan::Step& step, uint64_t bytes, uint64_t output_offset);

}  // namespace epccl::algorithms
