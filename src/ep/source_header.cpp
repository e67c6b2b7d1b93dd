#include "ep/source_header.hpp"

#include <algorithm>

namespace epccl::ep {
namespace {

constexpr size_t index_of(Strategy strategy) { return static_cast<size_t>(strategy); }

/// Rows that one source sends to other nodes, token by token.
class NetworkRows {
 public:
  NetworkRows(const topology::Cluster& cluster, const ExpertMap& experts, int source, const Routing& routing, uint32_t tokens)
      : remote_nodes_(static_cast<uint32_t>(cluster.nodes()) - 1) {
    for (auto& rows : of_token_) rows.assign(tokens, 0);
    std::ranges::fill(of_token_[index_of(Strategy::gather)], remote_nodes_);
    for (int node = 0; node < cluster.nodes(); ++node) {
      if (node == cluster.node_of(source)) continue;
      add_node(routing.to_node(node), experts.owner_local(node));
      const uint32_t rows = routing.to_node(node).count();
      note_stream(Strategy::dedup, rows);
      note_stream(Strategy::gather, tokens);
      for (const int receiver : cluster.members(node)) note_stream(Strategy::flat, routing.tokens_to(receiver));
    }
  }

  uint32_t total(Strategy strategy) const { return total_[index_of(strategy)]; }
  uint32_t streams(Strategy strategy) const { return streams_[index_of(strategy)]; }
  uint32_t longest(Strategy strategy) const { return longest_[index_of(strategy)]; }

  /// Rows of the fullest block.
  uint64_t fullest(Strategy strategy, uint32_t block_tokens) const {
    uint64_t most = 0, rows = 0;
    uint32_t in_block = 0;
    for (const uint32_t of_one : of_token_[index_of(strategy)]) {
      if (in_block++ == block_tokens) {
        in_block = 1;
        rows = 0;
      }
      most = std::max(most, rows += of_one);
    }
    return most;
  }

 private:
  void add_node(const Rows& rows, const std::vector<uint16_t>& owner) {
    auto& dedup = of_token_[index_of(Strategy::dedup)];
    auto& flat = of_token_[index_of(Strategy::flat)];
    rows.for_each([&](uint32_t token, std::span<const uint32_t> entries) {
      ++dedup[token];
      for (size_t i = 0; i < entries.size(); ++i)
        if (i == 0 || owner[Entry{entries[i]}.node_index()] != owner[Entry{entries[i - 1]}.node_index()]) ++flat[token];
    });
  }

  void note_stream(Strategy strategy, uint32_t rows) {
    const size_t i = index_of(strategy);
    total_[i] += rows;
    streams_[i] += rows > 0 ? 1 : 0;
    longest_[i] = std::max(longest_[i], rows);
  }

  const uint32_t remote_nodes_;
  std::array<std::vector<uint32_t>, strategies.size()> of_token_;
  std::array<uint32_t, strategies.size()> total_{}, streams_{}, longest_{};
};

// Messages of about a chunk; but two blocks fit into the half of scratch that receives what comes back.
uint32_t choose_block(const NetworkRows& rows, Strategy strategy, uint32_t tokens, const BlockLimits& limits) {
  const uint64_t longest = std::max(rows.longest(strategy), 1U);
  const uint64_t blocks = std::max<uint64_t>(1, (longest * limits.row_bytes + limits.chunk_bytes - 1) / limits.chunk_bytes);
  auto block = static_cast<uint32_t>((std::max(tokens, 1U) + blocks - 1) / blocks);
  if (rows.streams(strategy) == 0)  // everything stays on the node
    return static_cast<uint32_t>(std::clamp<uint64_t>(limits.chunk_bytes / limits.row_bytes, 1, std::max(tokens, 1U)));
  const uint64_t room = limits.scratch_bytes / 4;
  while (block > 1 && rows.fullest(strategy, block) * limits.row_bytes > room) block = (block + 1) / 2;
  return rows.fullest(strategy, block) * limits.row_bytes > room ? 0 : block;
}

}  // namespace

void describe_source(const topology::Cluster& cluster, const ExpertMap& experts, int source, const Routing& routing,
                     const BlockLimits& limits, SourceHeader& header) {
  const NetworkRows rows(cluster, experts, source, routing, header.tokens);
  for (const Strategy strategy : strategies) {
    const size_t i = index_of(strategy);
    header.block_tokens[i] = choose_block(rows, strategy, header.tokens, limits);
    header.network_rows[i] = rows.total(strategy);
    header.network_streams[i] = rows.streams(strategy);
  }
}

}  // namespace epccl::ep
