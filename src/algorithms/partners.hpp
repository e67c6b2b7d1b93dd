// Which ranks of other nodes a rank turns to, and in which order.
#pragma once

#include <bit>
#include <vector>

#include "topology/cluster.hpp"

namespace epccl::algorithms {

/// All ranks of other nodes: by distance of the nodes (`direction` 1: to higher numbers, -1: to lower), and within a node by
/// distance from the rank's own local position. Who sends to them in direction 1 and receives from them in direction -1 has in
/// each step a partner of its own: no receiver is everybody's first, nor is any NIC of its node.
inline std::vector<int> remote_partners(const topology::Cluster& cluster, int rank, int direction) {
  const int nodes = cluster.nodes(), node = cluster.node_of(rank), local = cluster.local_of(rank);
  std::vector<int> order;
  for (int distance = 1; distance < nodes; ++distance) {
    const int other = (node + nodes + direction * distance) % nodes;
    const int size = cluster.local_size(other);
    for (int step = 0; step < size; ++step)
      order.push_back(cluster.rank_at(other, (local % size + size + direction * step) % size));
  }
  return order;
}

/// How nodes that double what they have stand: the first power of two in steps, each of the others beside one of them.
struct Doubling {
  explicit Doubling(int nodes)
      : inner(static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes)))),
        steps(std::bit_width(static_cast<unsigned>(inner)) - 1),
        has_others(inner < nodes) {}
  int inner, steps;
  bool has_others;
  /// That come to one node, and leave it, at most.
  int messages() const { return steps + (has_others ? 1 : 0); }
  /// One after the other.
  int hops() const { return steps + (has_others ? 2 : 0); }
};

}  // namespace epccl::algorithms
