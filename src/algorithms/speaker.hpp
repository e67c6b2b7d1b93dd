// Who speaks for a node where few small messages are wanted.
#pragma once

#include "topology/cluster.hpp"

namespace epccl::algorithms {

/// The one rank of `node` that talks to node `other`: a different one for each. Symmetric: who sends to a node also hears it.
inline int speaker(const topology::Cluster& cluster, int node, int other) {
  return cluster.rank_at(node, (node + other) % cluster.local_size(node));
}

}  // namespace epccl::algorithms
