// What a source says of itself, so that all ranks cut and choose alike.
#pragma once

#include <cstdint>

#include "ep/routing/layout_message.hpp"
#include "ep/routing/routing.hpp"

namespace epccl::ep {

/// Constants that decide how tokens are cut into blocks. The same on every rank.
struct BlockLimits {
  uint64_t row_bytes = 0;  // the longest row the group allows
  uint64_t chunk_bytes = 128 << 10;
  uint64_t scratch_bytes = 8 << 20;
};

/// Fills in block_tokens (0: rows too long for this strategy and scratch), turn_blocks, network_rows and network_streams, for
/// header.tokens tokens.
void describe_source(const topology::Cluster& cluster, int source, const Routing& routing,
                     const BlockLimits& limits, SourceHeader& header);

/// The same for static mode, where nothing may depend on the routing: for `tokens` tokens with `k` entries; network_rows are
/// what uniform routing is expected to give.
void describe_maxima(const topology::Cluster& cluster, const ExpertMap& experts, int source, uint32_t tokens,
                     uint32_t k, const BlockLimits& limits, SourceHeader& header);

/// Scratch with which a token of `row_bytes` and `k` entries (any_k: as many as there may be, as describe_maxima() has it) fits; where it
/// did not, block_tokens is 0.
inline constexpr uint32_t any_k = UINT32_MAX;
uint64_t scratch_needed(const topology::Cluster& cluster, int source, Strategy strategy, uint64_t row_bytes,
                        uint32_t k);

/// What is told of an entry of a table that names no expert, where a graph gave it to the handle again.
Status unused_in_replay(int rank, uint32_t token, uint32_t position, int64_t id, uint32_t experts);

}  // namespace epccl::ep
