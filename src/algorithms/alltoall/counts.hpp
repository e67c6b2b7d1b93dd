// The exchange of counts that goes before an alltoallv whose ranks relay each other's blocks.
//
// Every rank contributes a row: for each peer how many bytes it sends there, where they lie in its input, and where in its
// output it wants what the peer sends; and one last entry for its total. Afterwards every rank of a node knows the rows of its node, what remote ranks send to its node, and
// all totals: what builders and cost model need, the same on every rank of the node.
//
//   input   [peer 0 .. R-1][total]                                              entries of 24 bytes
//   output  the rows of the node's ranks, in local order: L x (R+1) entries
//           then, node by node (not one's own), rank by rank of it: the entries for my node's L ranks, and the total
#pragma once

#include "algorithms/alltoall/alltoall.hpp"

namespace epccl::algorithms {

struct CountEntry {
  uint64_t bytes = 0;
  uint64_t input_offset = 0;
  uint64_t output_offset = 0;
};

uint64_t counts_input_bytes(const topology::Cluster& cluster);
uint64_t counts_output_bytes(const topology::Cluster& cluster, int node);
/// Scratch a rank needs for it.
uint64_t counts_scratch_bytes(const topology::Cluster& cluster);

plan::RankPlan build_counts_exchange(const topology::Cluster& cluster, int rank);
/// What it must do, for the verifier.
std::vector<plan::Transfer> counts_transfers(const topology::Cluster& cluster);

/// What the output says.
struct GatheredCounts {
  Exchange exchange;
  uint64_t total_bytes = 0;  // of all ranks to all ranks
};
/// `pack_outputs`: receivers did not say where they want what comes; it is packed in rank order.
GatheredCounts read_counts(const topology::Cluster& cluster, int node, const CountEntry* output,
                           bool pack_outputs = false);

}  // namespace epccl::algorithms
