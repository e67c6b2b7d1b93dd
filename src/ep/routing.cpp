#include "ep/routing.hpp"

#include <algorithm>

namespace epccl::ep {
namespace {

// Where an entry goes, by expert id + 1: what is unused (id -1) goes to a rank and a node after the last.
struct Target {
  uint32_t rank, node, expert;
};

std::vector<Target> targets_of(const topology::Cluster& cluster, const ExpertMap& experts) {
  std::vector<Target> targets{
      {static_cast<uint32_t>(cluster.ranks()), static_cast<uint32_t>(cluster.nodes()), 0}};
  for (uint32_t expert = 0; expert < experts.experts(); ++expert) {
    const ExpertMap::Place& place = experts.place(expert);
    targets.push_back({static_cast<uint32_t>(place.rank), static_cast<uint32_t>(place.node),
                       place.node_index - experts.first(place.rank)});
  }
  return targets;
}

}  // namespace

template <typename Id>
void Routing::count(const ExpertMap& experts, const Id* table, size_t size) {
  std::vector<uint32_t> counts(experts.experts() + 1, 0);
  for (size_t i = 0; i < size; ++i) ++counts[static_cast<size_t>(table[i] + 1)];
  for (size_t node = 0; node < expert_entries_.size(); ++node)
    for (const uint32_t expert : experts.node_experts(static_cast<int>(node)))
      expert_entries_[node].push_back(counts[expert + 1]);
}

// One pass in the order of the tokens; every list is written at its own end. No branches: where a token goes is as good as
// random. Lists of what is unused come last.
template <typename Id>
void Routing::sort(const topology::Cluster& cluster, const ExpertMap& experts, const Id* table,
                   uint32_t tokens, uint32_t k) {
  const std::vector<Target> targets = targets_of(cluster, experts);
  struct Lists {
    uint32_t* entry = nullptr;
    uint32_t* token = nullptr;
    uint32_t last = 0;  // token + 1
  };
  std::vector<Lists> ranks(entry_begin_.size()), nodes(node_begin_.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    ranks[rank] = {entries_.data() + entry_begin_[rank], rank_tokens_.data() + entry_begin_[rank]};
  for (size_t node = 0; node < nodes.size(); ++node)
    nodes[node].token = node_tokens_.data() + node_begin_[node];
  for (uint32_t token = 0; token < tokens; ++token)
    for (uint32_t position = 0; position < k; ++position) {
      const Target& target = targets[static_cast<size_t>(*table++ + 1)];
      Lists &rank = ranks[target.rank], &node = nodes[target.node];
      const bool first = rank.last != token + 1, first_on_node = node.last != token + 1;
      *rank.entry++ = Entry::of(target.expert, position, first).word;
      *rank.token = token;
      rank.token += first;
      rank.last = token + 1;
      *node.token = token;
      node.token += first_on_node;
      node.last = token + 1;
    }
  for (size_t rank = 0; rank < rank_count_.size(); ++rank)
    rank_count_[rank] = static_cast<uint32_t>(ranks[rank].token - rank_tokens_.data() - entry_begin_[rank]);
  for (size_t node = 0; node < node_count_.size(); ++node)
    node_count_[node] = static_cast<uint32_t>(nodes[node].token - node_tokens_.data() - node_begin_[node]);
}

Routing::Routing(const topology::Cluster& cluster, const ExpertMap& experts, const TopK& topk)
    : expert_entries_(static_cast<size_t>(cluster.nodes())),
      rank_count_(static_cast<size_t>(cluster.ranks())),
      node_count_(static_cast<size_t>(cluster.nodes())) {
  const size_t size = size_t{topk.tokens} * topk.k;
  if (topk.wide)
    count(experts, static_cast<const int64_t*>(topk.data), size);
  else
    count(experts, static_cast<const int32_t*>(topk.data), size);
  size_t at = 0, node_at = 0;
  entry_begin_.assign(static_cast<size_t>(cluster.ranks()) + 1, 0);
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    entry_begin_[static_cast<size_t>(rank)] = at;
    const auto& of_node = expert_entries_[static_cast<size_t>(cluster.node_of(rank))];
    for (uint32_t expert = 0; expert < experts.count(rank); ++expert)
      at += of_node[experts.first(rank) + expert];
  }
  entry_begin_.back() = at;
  for (const auto& of_node : expert_entries_) {
    node_begin_.push_back(node_at);
    size_t entries = 0;
    for (const uint32_t of_expert : of_node) entries += of_expert;
    node_at += std::min<size_t>(topk.tokens, entries) + 1;  // the place after the end is written, too
  }
  node_begin_.push_back(node_at);
  entries_.resize(size);
  rank_tokens_.resize(size);
  node_tokens_.resize(node_at + topk.tokens + 1);
  if (topk.wide)
    sort(cluster, experts, static_cast<const int64_t*>(topk.data), topk.tokens, topk.k);
  else
    sort(cluster, experts, static_cast<const int32_t*>(topk.data), topk.tokens, topk.k);
}

}  // namespace epccl::ep
