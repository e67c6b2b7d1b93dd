// alltoallv on one node, where a rank knows its own counts only. A plan that is built once and fitted to each call:
//
//   rank A                                        rank B
//   what it tells -> head of A's scratch                                         (runtime::Call::tells)
//   block for B -> slot B of A's scratch                                         if it fits into a slot
//   post  slot 0, value 1             ----->      wait;  hears A;  copy  slot B  -> output, as many bytes as B expects
//                                                             or:  copy  A.input -> output, if that is what A sends
//   wait                              <-----      post  slot 1, value 1          if any peer sends a large block: A's input is its own again
//
// A rank reads what a peer tells about the blocks of the two, and a sum over all that the peer sends, and one over all that it expects: if
// all sums of the one kind are those of the other, all ranks agree (see BlockSums). Else each looks for the pair that does not. Where A
// and B do not, B has copied nothing beyond A's slot.
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

/// Of a rank's counts: alike over all ranks if, but for a chance in 2^64, each block is as long for its sender as for its receiver.
struct BlockSums {
  uint64_t sent = 0, expected = 0;

  void add_sent(int from, int to, uint64_t bytes) { sent += hash(from, to, bytes); }
  void add_expected(int from, int to, uint64_t bytes) { expected += hash(from, to, bytes); }
  void add(const BlockSums& other) {
    sent += other.sent;
    expected += other.expected;
  }
  bool agree() const { return sent == expected; }

 private:
  static uint64_t hash(int from, int to, uint64_t bytes);
};

/// A rank's plan with places for blocks: built once, fitted to each call. The numbers are steps, by peer.
struct FittedPlan {
  plan::RankPlan plan;
  std::vector<uint32_t> sent, received;  // this rank's own block is the same step in both
  std::vector<uint32_t> let_go;  // waits until the peer has read its block where it lies; the own: none
  uint32_t has_read = 0;         // the post that peers wait for so
};

/// Blocks of up to `slot_bytes` go through scratch. `head_bytes`: of each rank's scratch, kept free. One node. Scratch needed:
/// head + ranks * slot bytes.
FittedPlan build_blocks(const topology::Cluster& cluster, int rank, uint64_t head_bytes, uint64_t slot_bytes);

/// Fits a step to a block; bytes 0: there is none, or it goes another way.
void fit_sent(plan::Step& step, uint64_t bytes, uint64_t input_offset);
void fit_received(plan::Step& step, uint64_t bytes, uint64_t output_offset);
/// A received block is read from its slot again, or where it lies in the sender's input.
void fit_slot(plan::Step& received, int rank, uint64_t head_bytes, uint64_t slot_bytes);
void fit_source(plan::Step& received, uint64_t input_offset);
/// Whether a wait or post is one of this call.
void fit_turn(plan::Step& step, bool takes_part);

}  // namespace epccl::algorithms
