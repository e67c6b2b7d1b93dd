#include "algorithms/collectives/building.hpp"

#include <algorithm>

namespace epccl::algorithms {

std::vector<RankRun> runs_of(const topology::Cluster& cluster, int node) {
  std::vector<RankRun> runs;
  const std::vector<int>& members = cluster.members(node);
  for (size_t local = 0; local < members.size(); ++local) {
    if (!runs.empty() && runs.back().first + runs.back().count == members[local])
      ++runs.back().count;
    else
      runs.push_back({members[local], 1, local});
  }
  return runs;
}

int most_carriers(const topology::Cluster& cluster) {
  int most = cluster.local_size(0);
  for (int node = 1; node < cluster.nodes(); ++node) most = std::min(most, cluster.local_size(node));
  return most;
}

Carriers::Carriers(const RoundBuilder& b, int first)
    : cluster_(b.cluster), first_(first), piece_(b.piece()), unit_(b.call.unit) {
  const int most = most_carriers(cluster_), wanted = b.parameters.carriers;
  count_ = wanted < 1 ? most : std::min(wanted, most);
  distance_ = most / count_;
}

PartCounts part_counts(const topology::Cluster& cluster, const CollectiveParameters& parameters) {
  const bool has_room = parameters.fetch || parameters.room_to_fetch;
  const size_t fetched = has_room ? static_cast<size_t>(cluster.max_local_size() - 1) : 0;
  if (cluster.nodes() == 1) return {1, 1, fetched};
  if (parameters.form == Form::flat) return {1, static_cast<size_t>(cluster.ranks() - 1), fetched};
  return {1, static_cast<size_t>(cluster.nodes() - 1), fetched};
}

}  // namespace epccl::algorithms
