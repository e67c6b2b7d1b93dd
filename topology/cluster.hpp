// A cluster as the ranks see it: which node each rank is on, its position there, and the rails.
// Pure data, the same on every rank; made from the ranks' exchanged views.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace epccl::topology {

/// Where ranks stand. A *node* is what shares a host id; a *local position* is a rank's place among the ranks
/// of its node (in rank order); a *rail* is the set of ranks with the same local position. Nodes may hold
/// unequal numbers of ranks, and ranks of one node need not be consecutive.
class Cluster {
 public:
  /// One node with `ranks` ranks, numbered node by node: {3, 5} is ranks 0..2 on node 0 and 3..7 on node 1.
  static Cluster from_sizes(const std::vector<int>& ranks_per_node);
  /// N nodes x L ranks, numbered node by node.
  static Cluster uniform(int nodes, int ranks_per_node);
  /// host_ids[r] is rank r's host id; nodes are numbered by first appearance. Error when empty.
  static Result<Cluster> from_host_ids(const std::vector<uint64_t>& host_ids);

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int node_of(int rank) const { return node_of_[static_cast<size_t>(rank)]; }
  int local_of(int rank) const { return local_of_[static_cast<size_t>(rank)]; }
  /// Ranks of a node in local order.
  const std::vector<int>& members(int node) const { return members_[static_cast<size_t>(node)]; }
  int local_size(int node) const { return static_cast<int>(members(node).size()); }
  int rank_at(int node, int local) const { return members(node)[static_cast<size_t>(local)]; }
  int max_local_size() const { return max_local_; }
  bool uniform() const { return uniform_; }
  bool same_node(int a, int b) const { return node_of(a) == node_of(b); }
  /// Ranks at a local position, one per node that is large enough, in node order.
  std::vector<int> rail(int local) const;

 private:
  std::vector<int> node_of_, local_of_;
  std::vector<std::vector<int>> members_;
  int max_local_ = 0;
  bool uniform_ = true;
};

}  // namespace epccl::topology
