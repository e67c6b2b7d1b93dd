// Where one rank's tokens go: its top-k table, sorted by node.
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

/// One use of an expert by a token: the expert's index on its node, and its position in the token's top-k. Ascending order
/// is by rank, then by expert.
struct Entry {
  uint32_t word = 0;
  static Entry of(uint32_t node_index, uint32_t k) { return {node_index << 6 | k}; }
  uint32_t node_index() const { return word >> 6; }
  uint32_t k() const { return word & 63; }
};

/// Rows as they are kept and sent: a word with the token and the number of its entries, then the entries, ascending.
///   [token << 6 | entries - 1] [entry] ... [token << 6 | entries - 1] [entry] ...
class Rows {
 public:
  void add(uint32_t token, std::span<const uint32_t> entries) {
    words_.push_back(token << 6 | static_cast<uint32_t>(entries.size() - 1));
    words_.insert(words_.end(), entries.begin(), entries.end());
    ++count_;
  }
  uint32_t count() const { return count_; }
  std::span<const uint32_t> words() const { return words_; }

  /// Rows that came as words. Error: they do not end with a row, or tokens do not ascend.
  static Result<Rows> read(std::span<const uint32_t> words, uint32_t count, uint32_t tokens, uint32_t node_experts, uint32_t k);

  /// use(token, entries) for each row.
  template <typename Use>
  void for_each(Use use) const {
    for (size_t at = 0; at < words_.size();) {
      const uint32_t entries = (words_[at] & 63) + 1;
      use(words_[at] >> 6, std::span(words_).subspan(at + 1, entries));
      at += 1 + entries;
    }
  }

 private:
  friend class Routing;
  std::vector<uint32_t> words_;
  uint32_t count_ = 0;
};

class Routing {
 public:
  /// Linear in tokens * k. Experts must exist.
  static Routing make(const topology::Cluster& cluster, const ExpertMap& experts, const TopK& topk);

  const Rows& to_node(int node) const { return by_node_[static_cast<size_t>(node)]; }
  /// Tokens with an expert on `rank`.
  uint32_t tokens_to(int rank) const { return rank_tokens_[static_cast<size_t>(rank)]; }
  /// Entries of an expert, by node and node index.
  std::span<const uint32_t> expert_entries(int node) const { return expert_entries_[static_cast<size_t>(node)]; }

 private:
  std::vector<Rows> by_node_;
  std::vector<uint32_t> rank_tokens_;
  std::vector<std::vector<uint32_t>> expert_entries_;
};

}  // namespace epccl::ep
