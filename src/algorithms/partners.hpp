// In which order a rank turns to those of other nodes.
#pragma once

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

}  // namespace epccl::algorithms
