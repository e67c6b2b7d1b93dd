#include "ep/routing/source_header.hpp"

#include <algorithm>
#include <cmath>

namespace epccl::ep {
namespace {

constexpr size_t index_of(Strategy strategy) {
  return static_cast<size_t>(strategy);
}

/// Of `experts`, k for each token, all equally likely: tokens that have one of these `some`.
uint32_t expected_tokens(uint32_t tokens, uint32_t experts, uint32_t some, uint32_t k) {
  double none = 1;
  for (uint32_t i = 0; i < std::min(k, experts); ++i)
    none *= std::max(0.0, static_cast<double>(experts) - some - i) / (experts - i);
  return static_cast<uint32_t>(std::ceil(tokens * (1 - none)));
}

/// Rows of one token that go to other nodes, at most.
uint64_t most_of_token(const topology::Cluster& cluster, int source, Strategy strategy, uint32_t k) {
  const auto nodes = static_cast<uint64_t>(cluster.nodes()) - 1;
  if (strategy == Strategy::gather) return nodes;
  const auto ranks = static_cast<uint64_t>(cluster.ranks() - cluster.local_size(cluster.node_of(source)));
  return std::min<uint64_t>(strategy == Strategy::flat ? ranks : nodes, k);
}

/// Rows that one source sends to other nodes.
class NetworkRows {
 public:
  NetworkRows(const topology::Cluster& cluster, int source, const Routing& routing, uint32_t tokens,
              uint32_t k)
      : NetworkRows(cluster, source, k) {
    for (int node = 0; node < cluster.nodes(); ++node) {
      if (node == cluster.node_of(source)) continue;
      note_stream(Strategy::dedup, static_cast<uint32_t>(routing.to_node(node).size()));
      note_stream(Strategy::gather, tokens);
      for (const int receiver : cluster.members(node))
        note_stream(Strategy::flat, static_cast<uint32_t>(routing.to_rank(receiver).tokens.size()));
    }
  }

  /// As uniform routing is expected to give them. Every stream has room for all tokens.
  NetworkRows(const topology::Cluster& cluster, int source, const ExpertMap& experts, uint32_t tokens,
              uint32_t k)
      : NetworkRows(cluster, source, any_k) {
    for (int node = 0; node < cluster.nodes(); ++node) {
      if (node == cluster.node_of(source)) continue;
      note_stream(Strategy::dedup,
                  std::max(1U, expected_tokens(tokens, experts.experts(), experts.node_size(node), k)));
      note_stream(Strategy::gather, tokens);
      for (const int receiver : cluster.members(node))
        note_stream(Strategy::flat,
                    std::max(1U, expected_tokens(tokens, experts.experts(), experts.count(receiver), k)));
    }
  }

  uint32_t total(Strategy strategy) const { return total_[index_of(strategy)]; }
  uint32_t streams(Strategy strategy) const { return streams_[index_of(strategy)]; }
  uint32_t longest(Strategy strategy) const { return longest_[index_of(strategy)]; }

  /// Rows of one token, at most.
  uint64_t most_of_token(Strategy strategy) const { return most_of_token_[index_of(strategy)]; }

 private:
  NetworkRows(const topology::Cluster& cluster, int source, uint32_t k) {
    for (const Strategy strategy : strategies)
      most_of_token_[index_of(strategy)] = ep::most_of_token(cluster, source, strategy, k);
  }

  void note_stream(Strategy strategy, uint32_t rows) {
    const size_t i = index_of(strategy);
    total_[i] += rows;
    streams_[i] += rows > 0 ? 1 : 0;
    longest_[i] = std::max(longest_[i], rows);
  }

  std::array<uint64_t, strategies.size()> most_of_token_{};
  std::array<uint32_t, strategies.size()> total_{}, streams_{}, longest_{};
};

constexpr uint64_t longest_turn = 4;

constexpr uint64_t scratch_rows = 4;  // of each of those of a turn

/// Rows that one turn may have: two fit into the half of scratch that receives what comes back.
uint64_t room_for_rows(const BlockLimits& limits) {
  return limits.scratch_bytes / scratch_rows / limits.row_bytes;
}

// Messages of about a chunk, if there is room.
uint32_t choose_block(const NetworkRows& rows, Strategy strategy, uint32_t tokens,
                      const BlockLimits& limits) {
  const uint64_t longest = std::max(rows.longest(strategy), 1U);
  const uint64_t blocks =
      std::max<uint64_t>(1, (longest * limits.row_bytes + limits.chunk_bytes - 1) / limits.chunk_bytes);
  auto block = static_cast<uint32_t>((std::max(tokens, 1U) + blocks - 1) / blocks);
  if (rows.streams(strategy) == 0)  // everything stays on the node
    return static_cast<uint32_t>(
        std::clamp<uint64_t>(limits.chunk_bytes / limits.row_bytes, 1, std::max(tokens, 1U)));
  const uint64_t room = room_for_rows(limits);
  while (block > 1 && block * rows.most_of_token(strategy) > room) block = (block + 1) / 2;
  return block * rows.most_of_token(strategy) > room ? 0 : block;
}

void describe(const NetworkRows& rows, uint32_t tokens, const BlockLimits& limits, SourceHeader& header) {
  for (const Strategy strategy : strategies) {
    const size_t i = index_of(strategy);
    header.block_tokens[i] = choose_block(rows, strategy, tokens, limits);
    const uint64_t block_rows = std::max<uint64_t>(1, header.block_tokens[i] * rows.most_of_token(strategy));
    header.turn_blocks[i] =
        static_cast<uint32_t>(std::clamp<uint64_t>(room_for_rows(limits) / block_rows, 1, longest_turn));
    header.network_rows[i] = rows.total(strategy);
    header.network_streams[i] = rows.streams(strategy);
  }
}

}  // namespace

void describe_source(const topology::Cluster& cluster, int source, const Routing& routing,
                     const BlockLimits& limits, SourceHeader& header) {
  describe(NetworkRows(cluster, source, routing, header.tokens, header.k), header.tokens, limits, header);
}

void describe_maxima(const topology::Cluster& cluster, const ExpertMap& experts, int source, uint32_t tokens,
                     uint32_t k, const BlockLimits& limits, SourceHeader& header) {
  describe(NetworkRows(cluster, source, experts, tokens, k), tokens, limits, header);
}

uint64_t scratch_needed(const topology::Cluster& cluster, int source, Strategy strategy, uint64_t row_bytes,
                        uint32_t k) {
  return scratch_rows * row_bytes * most_of_token(cluster, source, strategy, k);
}

Status unused_in_replay(int rank, uint32_t token, uint32_t position, int64_t id, uint32_t experts) {
  return error(Code::invalid_argument,
               "rank {}: topk_idx[{}][{}] was expert {} in a replay, but there are {} experts: the entry "
               "counted as unused",
               rank, token, position, id, experts);
}

}  // namespace epccl::ep
