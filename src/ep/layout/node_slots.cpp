#include <algorithm>

#include "ep/layout/layout.hpp"

namespace epccl::ep {

const char* to_string(SlotLayout layout) {
  switch (layout) {
    case SlotLayout::expert_major:
      return "expert_major";
    case SlotLayout::rank_major:
      return "rank_major";
    case SlotLayout::flat:
      return "flat";
  }
  return "?";
}

NodeSlots::NodeSlots(const topology::Cluster& cluster, const ExpertMap& experts, int node,
                     const SlotRules& rules, std::span<const SourceLayout> sources)
    : rules_(rules), by_expert_(rules.layout == SlotLayout::expert_major) {
  const auto& members = cluster.members(node);
  entries_of_.assign(experts.node_size(node), 0);
  for (const int member : members) expert_counts_.push_back(experts.count(member));
  total_.assign(members.size(), 0);
  before_expert_.reserve(sources.size() * entries_of_.size());
  first_of_rank_.reserve(sources.size() * members.size());
  for (const SourceLayout& source : sources) {
    before_expert_.insert(before_expert_.end(), entries_of_.begin(), entries_of_.end());
    for (size_t expert = 0; expert < entries_of_.size(); ++expert)
      entries_of_[expert] += source.expert_entries[expert];
    const auto index = static_cast<uint32_t>(&source - sources.data());
    for (size_t local = 0; local < members.size(); ++local) {
      first_of_rank_.push_back(rules.layout == SlotLayout::rank_major ? index * rules.max_tokens
                                                                      : total_[local]);
      total_[local] += source.rank_tokens[local];
    }
  }
  if (rules.layout == SlotLayout::rank_major)
    total_.assign(members.size(), static_cast<uint32_t>(sources.size()) * rules.max_tokens);
  place_experts(experts, members);
}

void NodeSlots::place_experts(const ExpertMap& experts, const std::vector<int>& members) {
  zone_begin_.assign(entries_of_.size(), 0);
  zone_rows_ = entries_of_;
  if (!by_expert_) return;
  const uint32_t alignment = std::max(rules_.alignment, 1U);
  for (size_t local = 0; local < members.size(); ++local) {
    uint32_t next = 0;
    const uint32_t first = experts.first(members[local]);
    for (uint32_t expert = first; expert < first + experts.count(members[local]); ++expert) {
      uint32_t rows = entries_of_[expert];
      if (rules_.capacity > 0) rows = rules_.pad ? rules_.capacity : std::min(rows, rules_.capacity);
      zone_begin_[expert] = next;
      zone_rows_[expert] = (rows + alignment - 1) / alignment * alignment;
      next += zone_rows_[expert];
    }
    total_[local] = next;
  }
}

}  // namespace epccl::ep
