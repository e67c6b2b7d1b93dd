// Where one rank's tokens go: its top-k table, taken apart by rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "ep/expert_map.hpp"
#include "topology/cluster.hpp"

namespace epccl::ep {

inline constexpr uint32_t max_topk = 64;
inline constexpr uint32_t max_tokens = 1U << 26;

/// A top-k table [tokens, k] of expert ids; -1: unused.
struct TopK {
  const void* data = nullptr;
  bool wide = true;  // int64, else int32
  uint32_t tokens = 0;
  uint32_t k = 0;

  int64_t at(size_t index) const {
    return wide ? static_cast<const int64_t*>(data)[index] : static_cast<const int32_t*>(data)[index];
  }
};

/// One use of an expert by a token, as its owner sees it: the expert's local id, the position in the token's top-k, and
/// whether it is the token's first on this rank.
struct Entry {
  uint32_t word = 0;
  static Entry of(uint32_t expert, uint32_t k, bool first) {
    return {expert << 7 | k << 1 | static_cast<uint32_t>(first)};
  }
  uint32_t expert() const { return word >> 7; }
  uint32_t k() const { return word >> 1 & 63; }
  bool first() const { return (word & 1) != 0; }
};

/// What one rank gets from one source: the tokens, ascending, and their entries, token by token, in the order of the top-k.
struct RankRows {
  std::span<const uint32_t> tokens;
  std::span<const uint32_t> entries;  // Entry words
};

class Routing {
 public:
  Routing() = default;
  /// Linear in tokens * k. Experts must exist.
  Routing(const topology::Cluster& cluster, const ExpertMap& experts, const TopK& topk);

  RankRows to_rank(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return {std::span(rank_tokens_).subspan(entry_begin_[r], rank_count_[r]),
            std::span(entries_).subspan(entry_begin_[r], entry_begin_[r + 1] - entry_begin_[r])};
  }
  /// Tokens with an expert on a node, ascending.
  std::span<const uint32_t> to_node(int node) const {
    const auto n = static_cast<size_t>(node);
    return std::span(node_tokens_).subspan(node_begin_[n], node_count_[n]);
  }
  /// Entries of each expert of a node, by node index.
  std::span<const uint32_t> expert_entries(int node) const {
    return expert_entries_[static_cast<size_t>(node)];
  }

 private:
  template <typename Id>
  void count(const ExpertMap& experts, const Id* table, size_t size);
  template <typename Id>
  void sort(const topology::Cluster& cluster, const ExpertMap& experts, const Id* table, uint32_t tokens,
            uint32_t k);

  std::vector<std::vector<uint32_t>> expert_entries_;  // [node][node index]
  std::vector<size_t> entry_begin_;                    // [rank]
  std::vector<uint32_t> entries_;
  std::vector<uint32_t> rank_tokens_;  // a rank's begin where its entries do: there are no more of them
  std::vector<uint32_t> rank_count_;
  std::vector<size_t> node_begin_;  // [node]
  std::vector<uint32_t> node_tokens_, node_count_;
};

}  // namespace epccl::ep
