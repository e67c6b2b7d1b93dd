// Where one rank's tokens go: its top-k table, taken apart by rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ep/routing/entry_sorter.hpp"
#include "ep/routing/expert_map.hpp"
#include "ep/routing/room.hpp"
#include "ep/routing/top_k.hpp"
#include "topology/cluster.hpp"

namespace epccl::ep {

/// What one rank gets from one source: the tokens, ascending, and their entries, token by token, in the order of the top-k.
struct RankRows {
  std::span<const uint32_t> tokens;
  std::span<const uint32_t> entries;  // Entry words
};

/// Lists lie as they are sent (layout_message.hpp), node by node:
///   [tokens for each rank][entries of each expert][tokens for the node] [entries, tokens] of each rank
class Routing {
 public:
  Routing(const topology::Cluster& cluster, const ExpertMap& experts)
      : cluster_(cluster), experts_(experts), sorter_(cluster, experts) {}
  Routing(const topology::Cluster& cluster, const ExpertMap& experts, const TopK& topk)
      : Routing(cluster, experts) {
    read(topk);
  }

  /// Takes a table apart. Linear in tokens * k. Memory is kept for the next.
  void read(const TopK& topk);

  /// Index in the table of the first entry that is neither an expert nor -1. If there is one, there are no lists.
  std::optional<size_t> wrong_entry() const { return wrong_; }

  RankRows to_rank(int rank) const {
    const Place& place = ranks_[static_cast<size_t>(rank)];
    return {words(place.begin + place.entries, place.tokens), words(place.begin, place.entries)};
  }
  /// Tokens with an expert on a node, ascending.
  std::span<const uint32_t> to_node(int node) const { return part(node, 2, 1); }
  /// How many tokens each rank of a node gets, by local position.
  std::span<const uint32_t> rank_tokens(int node) const { return part(node, 0, 1); }
  /// Entries of each expert of a node, by node index.
  std::span<const uint32_t> expert_entries(int node) const { return part(node, 1, 1); }
  /// All these of a node, and its ranks' lists, one behind the other.
  std::span<const uint32_t> all_of(int node) const { return part(node, 0, parts); }

 private:
  struct Place {
    size_t begin = 0;  // of the entries, which the tokens follow
    uint32_t entries = 0, tokens = 0;
  };
  static constexpr size_t parts = 4;

  std::span<const uint32_t> words(size_t begin, size_t count) const { return {words_.data() + begin, count}; }
  std::span<const uint32_t> part(int node, size_t first, size_t count) const {
    const size_t* begin = begin_.data() + static_cast<size_t>(node) * parts + first;
    return words(begin[0], begin[count] - begin[0]);
  }

  const topology::Cluster& cluster_;
  const ExpertMap& experts_;
  EntrySorter sorter_;
  std::optional<size_t> wrong_;
  Room<uint32_t> words_;
  std::vector<size_t> begin_;  // of each part of each node, and the end
  std::vector<Place> ranks_;
};

}  // namespace epccl::ep
