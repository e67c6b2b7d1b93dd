// Which node has the experts of which group.
#pragma once

#include <span>
#include <vector>

#include "base/status.hpp"
#include "ep/placement/placement.hpp"

namespace epccl::ep {

inline int group_of(const PlacementRules& rules, int expert) {
  return expert / (rules.experts / rules.groups);
}

struct GroupsOnNodes {
  std::vector<int> node_of;
  uint64_t moves = 0;  // experts that changed their node for the loads' sake
};
/// The node of each group: where `before` has most copies of its experts, if they have room there, or where least is to do; then, while a node has
/// more than its share and the tolerance, another one if that is better and as far as rules.max_moves allows. Error: there is no room for
/// all.
Result<GroupsOnNodes> groups_on_nodes(const topology::Cluster& cluster, const PlacementRules& rules,
                                      std::span<const double> load, std::span<const int> before);

}  // namespace epccl::ep
