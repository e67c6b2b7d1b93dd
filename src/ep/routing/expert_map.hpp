// Which rank owns which expert.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "topology/cluster.hpp"

namespace epccl::ep {

/// An expert has an index on its node: the node's experts are counted rank by rank (by local position), and on a rank in
/// ascending order of id. On its rank it has a local id, counted likewise.
class ExpertMap {
 public:
  // Node indices share a word with the position in the top-k.
  static constexpr uint32_t most_experts = 1U << 24;

  /// `expert_to_rank`: one entry an expert; empty: contiguous blocks, as equal as possible, in rank order.
  static Result<ExpertMap> make(const topology::Cluster& cluster, uint32_t experts,
                                std::span<const int> expert_to_rank);

  struct Place {
    int32_t rank = 0;
    int32_t node = 0;
    uint32_t node_index = 0;
  };

  uint32_t experts() const { return static_cast<uint32_t>(places_.size()); }
  const Place& place(uint32_t expert) const { return places_[expert]; }
  /// Experts of a node, by node index.
  const std::vector<uint32_t>& node_experts(int node) const {
    return node_experts_[static_cast<size_t>(node)];
  }
  uint32_t node_size(int node) const { return static_cast<uint32_t>(node_experts(node).size()); }
  /// Node index of a rank's first expert, and how many it has.
  uint32_t first(int rank) const { return first_[static_cast<size_t>(rank)]; }
  uint32_t count(int rank) const { return count_[static_cast<size_t>(rank)]; }

 private:
  std::vector<Place> places_;
  std::vector<std::vector<uint32_t>> node_experts_;
  std::vector<uint32_t> first_, count_;
};

}  // namespace epccl::ep
