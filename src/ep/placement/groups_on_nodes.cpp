#include "ep/placement/groups_on_nodes.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace epccl::ep {
namespace {

size_t at(int number) {
  return static_cast<size_t>(number);
}

class Assignment {
 public:
  Assignment(const topology::Cluster& cluster, const PlacementRules& rules, std::span<const double> load)
      : cluster_(cluster),
        rules_(rules),
        size_(rules.experts / rules.groups),
        node_of_(at(rules.groups), nowhere),
        load_(at(rules.groups)),
        room_(at(cluster.nodes())),
        work_(at(cluster.nodes())) {
    for (int expert = 0; expert < rules.experts; ++expert)
      load_[at(group_of(rules, expert))] += load[at(expert)];
    for (int node = 0; node < cluster.nodes(); ++node)
      room_[at(node)] = cluster.local_size(node) * rules.slots_per_rank;
  }

  void keep(std::span<const int> before) {
    std::vector<std::vector<int>> copies(at(rules_.groups), std::vector<int>(at(cluster_.nodes())));
    for (size_t slot = 0; slot < before.size(); ++slot)
      if (before[slot] != no_expert)
        ++copies[at(group_of(rules_, before[slot]))]
                [at(cluster_.node_of(static_cast<int>(slot) / rules_.slots_per_rank))];
    for (int group = 0; group < rules_.groups; ++group) {
      const auto most = std::ranges::max_element(copies[at(group)]);
      const int node = static_cast<int>(most - copies[at(group)].begin());
      if (*most > 0 && size_ <= room_[at(node)]) put(group, node);
    }
  }

  Status place_others() {
    std::vector<int> order(at(rules_.groups));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [this](int a, int b) { return load_[at(a)] > load_[at(b)]; });
    for (const int group : order) {
      if (node_of_[at(group)] != nowhere) continue;
      std::optional<int> least;
      for (int node = 0; node < cluster_.nodes(); ++node)
        if (size_ <= room_[at(node)] && (!least || each(node) < each(*least))) least = node;
      if (!least)
        return error(Code::invalid_argument,
                     "group {} of {} experts has room on no node: {} groups, {} nodes, {} slots a rank",
                     group, size_, rules_.groups, cluster_.nodes(), rules_.slots_per_rank);
      put(group, *least);
    }
    return {};
  }

  void improve() {
    const double mean = std::accumulate(work_.begin(), work_.end(), 0.0) / cluster_.ranks();
    // Each step takes something from the node that has most.
    for (int steps = 0; steps < 8 * rules_.groups; ++steps) {
      int fullest = 0;
      for (int node = 1; node < cluster_.nodes(); ++node)
        if (each(node) > each(fullest)) fullest = node;
      if (each(fullest) <= (1 + rules_.tolerance) * mean || !improve(fullest)) return;
    }
  }

  GroupsOnNodes made() && { return {std::move(node_of_), moved_}; }

 private:
  static constexpr int nowhere = -1;
  /// What each rank of a node has to do.
  double each(int node) const { return work_[at(node)] / cluster_.local_size(node); }

  void put(int group, int node) {
    node_of_[at(group)] = node;
    room_[at(node)] -= size_;
    work_[at(node)] += load_[at(group)];
  }

  void take(int group) {
    const int node = node_of_[at(group)];
    room_[at(node)] += size_;
    work_[at(node)] -= load_[at(group)];
  }

  /// What the fuller of two nodes has then, where `group` goes to `node` and `back` (nowhere: none) comes for it.
  std::optional<double> outcome(int group, int node, int back) const {
    const int from = node_of_[at(group)];
    const double load = load_[at(group)] - (back == nowhere ? 0 : load_[at(back)]);
    if (back == nowhere && size_ > room_[at(node)]) return {};
    return std::max((work_[at(from)] - load) / cluster_.local_size(from),
                    (work_[at(node)] + load) / cluster_.local_size(node));
  }

  bool improve(int fullest) {
    struct Best {
      int group, node, back;
      double worth;
      uint64_t moves;
    };
    std::optional<Best> best;
    const auto consider = [&](int group, int node, int back) {
      const std::optional<double> then = outcome(group, node, back);
      const auto moves = static_cast<uint64_t>(back == nowhere ? size_ : 2 * size_);
      if (!then || moves > rules_.max_moves - moved_) return;
      const double gain = each(fullest) - *then;
      if (gain <= 1e-9 * each(fullest)) return;
      const double worth = gain / static_cast<double>(moves);
      if (!best || worth > best->worth) best = Best{group, node, back, worth, moves};
    };
    for (int group = 0; group < rules_.groups; ++group) {
      if (node_of_[at(group)] != fullest) continue;
      for (int node = 0; node < cluster_.nodes(); ++node)
        if (node != fullest) consider(group, node, nowhere);
      for (int other = 0; other < rules_.groups; ++other)
        if (node_of_[at(other)] != fullest) consider(group, node_of_[at(other)], other);
    }
    if (!best) return false;
    moved_ += best->moves;
    take(best->group);
    if (best->back != nowhere) {
      take(best->back);
      put(best->back, fullest);
    }
    put(best->group, best->node);
    return true;
  }

  const topology::Cluster& cluster_;
  const PlacementRules& rules_;
  int size_;  // experts of a group
  std::vector<int> node_of_;
  std::vector<double> load_;  // of each group
  std::vector<int> room_;     // slots of each node for experts that it has not
  std::vector<double> work_;  // of each node
  uint64_t moved_ = 0;
};

}  // namespace

Result<GroupsOnNodes> groups_on_nodes(const topology::Cluster& cluster, const PlacementRules& rules,
                                      std::span<const double> load, std::span<const int> before) {
  Assignment assignment(cluster, rules, load);
  assignment.keep(before);
  EPCCL_TRY(assignment.place_others());
  assignment.improve();
  return std::move(assignment).made();
}

}  // namespace epccl::ep
