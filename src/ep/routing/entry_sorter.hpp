// Takes a top-k table apart: by rank its entries, by node its tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ep/routing/expert_map.hpp"
#include "ep/routing/room.hpp"
#include "ep/routing/top_k.hpp"
#include "topology/cluster.hpp"

namespace epccl::ep {

/// Keeps its memory for the next table.
class EntrySorter {
 public:
  EntrySorter(const topology::Cluster& cluster, const ExpertMap& experts);

  /// Takes in a table. Returns the index of its first entry that is neither an expert nor -1, if there is one; else counts
  /// entries, and notes which nodes each token goes to.
  std::optional<size_t> read(const TopK& topk);

  // After a table was read well:
  uint32_t entries_of(uint32_t expert) const { return entries_[expert + 1]; }
  /// Writes the tokens with an expert on a node, ascending; there is room for all tokens, and it may be overwritten. Returns
  /// how many there are.
  size_t list_tokens(int node, uint32_t* to) const;
  /// Sorts the entries by rank.
  void sort();
  /// Then: those of a rank, by token, then position: token << 32 | Entry, of which `first` is not yet set.
  std::span<const uint64_t> to_rank(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return {words_.data() + rank_begin_[r], rank_begin_[r + 1] - rank_begin_[r]};
  }

 private:
  // By expert id + 1: what is unused (id -1) goes to a rank after the last, and to no node.
  struct Target {
    uint32_t rank, word;
    uint64_t node_bit;
  };

  template <typename Id>
  std::optional<size_t> number(const Id* table);
  void count();
  void list_tokens_of_many_nodes();

  const topology::Cluster& cluster_;
  const ExpertMap& experts_;
  const bool many_nodes_;  // more than a word has bits
  std::vector<Target> targets_;
  uint32_t tokens_ = 0, k_ = 0;
  Room<uint32_t> numbers_;         // expert ids + 1
  std::vector<uint32_t> entries_;  // by expert id + 1
  Room<uint64_t> nodes_;           // by token, a bit each
  Room<uint64_t> words_;           // by rank
  std::vector<size_t> rank_begin_;
  // Of many nodes:
  std::vector<uint32_t> node_tokens_, node_count_;
  std::vector<size_t> node_begin_;
};

}  // namespace epccl::ep
