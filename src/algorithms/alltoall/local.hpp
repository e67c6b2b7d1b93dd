// The exchange among the ranks of one node: part of flat and of two_stage.
//
//   staged (small blocks, or no access to peers' input)       direct (large blocks)
//     copy  input -> own scratch, a slot a peer                 post  ready
//     post  ready                                               wait  peer ready; copy peer.input -> output
//     wait  peer ready; copy peer.scratch -> output             post  done; wait  readers done
#pragma once

#include "algorithms/alltoall/alltoall.hpp"

namespace epccl::algorithms {

/// Bytes of scratch, from offset 0, that the local exchange uses on every rank of a node of `local_size` ranks.
uint64_t local_scratch_bytes(int local_size, const Parameters& parameters);

/// Appends this rank's part, the block to itself included. Uses slots local_ready_slot and local_done_slot.
void append_local_exchange(plan::Builder& builder, const topology::Cluster& cluster, const Exchange& exchange,
                           int rank, const Parameters& parameters);

inline constexpr uint16_t local_ready_slot = 0;
inline constexpr uint16_t local_done_slot = 1;
inline constexpr uint16_t first_free_slot = 2;

}  // namespace epccl::algorithms
