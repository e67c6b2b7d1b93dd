#include "ep/placement/migration.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace epccl::ep {
namespace {

using Copy = Migration::Copy;

class Planner {
 public:
  Planner(const topology::Cluster& cluster, int slots_per_rank)
      : cluster_(cluster),
        slots_(slots_per_rank),
        sent_(static_cast<size_t>(cluster.ranks())),
        sent_far_(sent_.size()),
        got_far_(sent_.size()) {
    made_.arrivals.resize(sent_.size());
  }

  /// `holders`, `needers`: slots over all ranks, ascending.
  void move(const std::vector<int>& holders, const std::vector<int>& needers) {
    if (holders.empty()) {
      made_.lost.insert(made_.lost.end(), needers.begin(), needers.end());
      return;
    }
    std::map<int, std::vector<int>> of_node;
    for (const int slot : needers) of_node[cluster_.node_of(rank_of(slot))].push_back(slot);
    for (const auto& [node, slots] : of_node) {
      std::vector<int> here;
      for (const int holder : holders)
        if (cluster_.node_of(rank_of(holder)) == node) here.push_back(holder);
      if (here.empty())
        over_the_network(holders, slots);
      else
        inside(here, slots);
    }
  }

  Migration made() && {
    std::ranges::sort(made_.lost);
    return std::move(made_);
  }

 private:
  int rank_of(int slot) const { return slot / slots_; }
  static size_t at(int number) { return static_cast<size_t>(number); }

  int arrive(int slot) {
    auto& arrivals = made_.arrivals[at(rank_of(slot))];
    arrivals.push_back(slot % slots_);
    return static_cast<int>(arrivals.size()) - 1;
  }

  void inside(const std::vector<int>& holders, const std::vector<int>& needers) {
    for (const int needer : needers) {
      const auto key = [&](int holder) {
        return std::tuple(rank_of(holder) != rank_of(needer), sent_[at(rank_of(holder))]);
      };
      const int from = *std::ranges::min_element(holders, {}, key);
      if (rank_of(from) != rank_of(needer)) ++sent_[at(rank_of(from))];
      made_.first.push_back({rank_of(from), from % slots_, rank_of(needer), arrive(needer)});
    }
  }

  // One copy for the node, along a rail where that makes no link busier than another.
  void over_the_network(const std::vector<int>& holders, const std::vector<int>& needers) {
    using Key = std::tuple<int, bool, int>;
    Key least;
    int from = -1, to = -1;
    for (const int holder : holders)
      for (const int needer : needers) {
        const int sender = rank_of(holder), receiver = rank_of(needer);
        const Key key(std::max(sent_far_[at(sender)], got_far_[at(receiver)]),
                      cluster_.local_of(sender) != cluster_.local_of(receiver), sent_[at(receiver)]);
        if (from >= 0 && key >= least) continue;
        least = key;
        from = holder;
        to = needer;
      }
    ++sent_far_[at(rank_of(from))];
    ++got_far_[at(rank_of(to))];
    sent_[at(rank_of(to))] += static_cast<int>(needers.size()) - 1;
    const int came = arrive(to);
    made_.first.push_back({rank_of(from), from % slots_, rank_of(to), came});
    for (const int needer : needers)
      if (needer != to) made_.second.push_back({rank_of(to), came, rank_of(needer), arrive(needer)});
  }

  const topology::Cluster& cluster_;
  int slots_;
  Migration made_;
  std::vector<int> sent_, sent_far_, got_far_;  // copies so far: inside nodes, over the network
};

}  // namespace

Migration plan_migration(const topology::Cluster& cluster, int slots_per_rank, std::span<const int> before,
                         std::span<const int> after) {
  std::map<int, std::pair<std::vector<int>, std::vector<int>>> experts;  // holders, needers
  for (size_t slot = 0; slot < after.size(); ++slot) {
    if (before[slot] >= 0) experts[before[slot]].first.push_back(static_cast<int>(slot));
    if (after[slot] >= 0 && after[slot] != before[slot])
      experts[after[slot]].second.push_back(static_cast<int>(slot));
  }
  Planner planner(cluster, slots_per_rank);
  for (const auto& [expert, slots] : experts) planner.move(slots.first, slots.second);
  return std::move(planner).made();
}

}  // namespace epccl::ep
