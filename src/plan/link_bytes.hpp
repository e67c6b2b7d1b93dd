// What a plan moves, counted exactly from its steps: no clock, no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::plan {

/// Bytes and messages per link. Nodes and ranks are indices into the vectors.
struct LinkBytes {
  /// Traffic from one rank to another over the network.
  struct RankPair {
    int32_t source = 0, destination = 0;
    uint64_t bytes = 0, messages = 0;
    friend bool operator==(const RankPair&, const RankPair&) = default;
  };

  int nodes = 0;
  uint64_t messages = 0;                    // sends
  uint64_t network_bytes = 0;               // bytes of all sends
  uint64_t copied_bytes = 0;                // copies, moved rows, rows that sums read and write
  std::vector<uint64_t> node_pair_bytes;    // [source node * nodes + destination node]: see between_nodes()
  std::vector<RankPair> rank_pairs;         // those with at least one message, by source, then destination
  std::vector<uint64_t> messages_sent;      // per rank
  std::vector<uint64_t> messages_received;  // per rank
  std::vector<uint64_t> copied_in_node;     // per node: its part of copied_bytes
  std::vector<uint64_t> copied_to_peers;    // per node: the part between buffers of two ranks

  uint64_t between_nodes(int source, int destination) const {
    return node_pair_bytes[static_cast<size_t>(source) * static_cast<size_t>(nodes) +
                           static_cast<size_t>(destination)];
  }
  /// Bytes a node puts on, and takes from, the network.
  uint64_t egress(int node) const;
  uint64_t ingress(int node) const;
};

/// Counts a plan whose ranks, peers and tables are in range (well_formed() says so).
LinkBytes count_link_bytes(const Plan& plan);

}  // namespace epccl::plan
