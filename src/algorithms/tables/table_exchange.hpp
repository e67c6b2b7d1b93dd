// A table of equal size from every rank to every rank, before calls that need one (of dispatch and combine, of GPU calls).
//
//   rank            speaker of its node              speaker of another node         rank there
//   input --copy--> output of every rank of the node
//                   output --all of the node--send--> output --copy--> output of every rank of that node
//
// For each pair of nodes one rank of either speaks, a different one for each other node: few messages, which is what small
// blocks want. Blocks lie node by node in the output, so that what a node has to say is one piece.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "topology/cluster.hpp"

namespace epccl::algorithms {

/// Where the block of `source` lies in every output.
uint64_t table_offset(const topology::Cluster& cluster, int source, uint64_t block_bytes);

/// `chunk_bytes`: of one message, at most.
plan::RankPlan build_table_exchange(const topology::Cluster& cluster, int rank, uint64_t block_bytes,
                                    uint64_t chunk_bytes);

/// What it must do, for the verifier.
std::vector<plan::Transfer> table_transfers(const topology::Cluster& cluster, uint64_t block_bytes);

}  // namespace epccl::algorithms
