#include "algorithms/collectives/building.hpp"

#include <algorithm>

#include "algorithms/partners.hpp"

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
  const int wanted = b.parameters.carriers;
  smallest_ = most_carriers(cluster_);
  count_ = wanted < 1 ? smallest_ : std::min(wanted, smallest_);
}

// In the tree a place gets from the one without its lowest bit, and gives to those with one bit below that.
Branch branch_of(int nodes, const CollectiveParameters& parameters, int place) {
  Branch branch;
  if (parameters.variant == Variant::tree) {
    if (place > 0) branch.before = place & (place - 1);
    for (int bit = 1; place + bit < nodes && (place & bit) == 0; bit *= 2)
      branch.after.push_back(place + bit);
    std::ranges::reverse(branch.after);
  } else if (parameters.variant == Variant::relay) {
    branch.before = place - 1;
    if (place + 1 < nodes) branch.after.push_back(place + 1);
  } else {
    if (place > 0) branch.before = 0;
    for (int other = 1; place == 0 && other < nodes; ++other) branch.after.push_back(other);
  }
  return branch;
}

PartCounts part_counts(const topology::Cluster& cluster, const CollectiveSpec& call,
                       const CollectiveParameters& parameters) {
  const bool has_room = parameters.fetch || parameters.room_to_fetch;
  PartCounts counts{1, 1, has_room ? static_cast<size_t>(cluster.max_local_size() - 1) : 0};
  if (cluster.nodes() == 1) return counts;
  const auto nodes = static_cast<size_t>(cluster.nodes());
  const bool flat = parameters.form == Form::flat;
  counts.received = flat ? static_cast<size_t>(cluster.ranks() - 1) : nodes - 1;
  if (flat) return counts;
  if (call.kind == Collective::reduce)
    counts.received = branch_of(cluster.nodes(), parameters, 0).after.size();
  if (call.kind != Collective::allreduce) return counts;
  if (parameters.variant == Variant::tree) {
    counts.sent = 2;  // a sum is made while the one before is sent
    counts.received = static_cast<size_t>(Doubling(cluster.nodes()).messages());
  } else if (parameters.variant == Variant::split) {
    counts.shares = nodes;
  }
  return counts;
}

// Chunks are as large as messages may be, or as all shares of one together. Of a piece that makes several two are under way at least; up
// to four where there is room: one is added up while others travel.
SumPlaces sum_places(const PartCounts& counts, uint64_t piece, uint64_t unit, uint64_t message_bytes,
                     uint64_t room) {
  constexpr uint64_t most = 4;
  const uint64_t units = room / unit, whole = counts.sent + counts.fetched;
  const uint64_t of_one = counts.shares * whole + counts.received;  // with a unit for each share
  const uint64_t in_one_chunk = std::max((piece / unit + counts.shares - 1) / counts.shares, uint64_t{1});
  const uint64_t largest = std::max(message_bytes / unit, uint64_t{1});
  const uint64_t fitting = in_one_chunk <= std::min(units / of_one, largest)
                               ? in_one_chunk
                               : std::max(units / 2 / of_one, std::min(units / of_one, uint64_t{1}));
  const uint64_t share = std::min(fitting, largest);
  // Little room: not even a unit for each.
  const uint64_t few = units > counts.received ? (units - counts.received) / whole : 0;
  const uint64_t chunk = share > 0 ? share * counts.shares : std::max(few, uint64_t{1});
  const uint64_t received = std::max(share, uint64_t{1});
  const uint64_t under_way =
      std::clamp(units / (whole * chunk + counts.received * received), uint64_t{1}, most);
  return {chunk * unit, received * unit, counts.sent * under_way, counts.received * under_way,
          std::max(counts.fetched * under_way, uint64_t{1})};  // none is no ring; nobody takes it
}

}  // namespace epccl::algorithms
