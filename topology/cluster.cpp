#include "topology/cluster.hpp"

#include <algorithm>
#include <unordered_map>

namespace epccl::topology {

Result<Cluster> Cluster::from_host_ids(const std::vector<uint64_t>& host_ids) {
  if (host_ids.empty()) return error(Code::invalid_argument, "a cluster needs at least one rank");
  Cluster cluster;
  std::unordered_map<uint64_t, int> node_of_host;
  for (size_t rank = 0; rank < host_ids.size(); ++rank) {
    const auto [it, is_new] = node_of_host.try_emplace(host_ids[rank], cluster.nodes());
    if (is_new) cluster.members_.emplace_back();
    auto& members = cluster.members_[static_cast<size_t>(it->second)];
    cluster.node_of_.push_back(it->second);
    cluster.local_of_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(rank));
  }
  for (const auto& members : cluster.members_) {
    cluster.max_local_ = std::max(cluster.max_local_, static_cast<int>(members.size()));
    cluster.uniform_ = cluster.uniform_ && members.size() == cluster.members_.front().size();
  }
  return cluster;
}

Cluster Cluster::from_sizes(const std::vector<int>& ranks_per_node) {
  std::vector<uint64_t> host_ids;
  for (size_t node = 0; node < ranks_per_node.size(); ++node)
    host_ids.insert(host_ids.end(), static_cast<size_t>(ranks_per_node[node]), node);
  return from_host_ids(host_ids).value();
}

Cluster Cluster::uniform(int nodes, int ranks_per_node) {
  return from_sizes(std::vector<int>(static_cast<size_t>(nodes), ranks_per_node));
}

std::vector<int> Cluster::rail(int local) const {
  std::vector<int> ranks;
  for (const auto& members : members_)
    if (local < static_cast<int>(members.size())) ranks.push_back(members[static_cast<size_t>(local)]);
  return ranks;
}

}  // namespace epccl::topology
