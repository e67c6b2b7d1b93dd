// Who carries what in a two-stage exchange, and where it lies in scratch.
//
// All blocks from the ranks of node n to the ranks of node m travel as `groups` messages. Group g holds the blocks of a
// range of n's local positions, [source][destination] in local order. With as many groups as ranks (carriers = all) each
// rank sends its own blocks along its rail, straight from its input. With fewer, small messages share: the ranks of a group
// first copy their blocks into the scratch of the one that carries them.
//
//   node n                        carrier                         relay                        node m
//   source 0 --copy--> [s0 d0 d1 ..|s1 d0 d1 ..| ...] --send--> [s0 d0 d1 ..|s1 ..| ...] --copy--> destination 0
//   source 1 --copy-->     ring of scratch, rounds                ring of scratch, rounds     --copy--> destination 1
//
// A message is cut into chunks. The messages of one carrier (or relay) take turns, some chunks each, and the chunks in that
// order are grouped into *rounds* of about one chunk of bytes: what is signalled and awaited as one. Rounds follow each other
// in a ring of scratch.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/alltoall/alltoall.hpp"

namespace epccl::algorithms {

/// One message between two nodes, seen from one of them.
struct NodeMessage {
  int other_node = 0;
  int peer_rank = 0;     // the relay (outgoing) or the carrier (incoming) there
  int first_source = 0;  // local positions [first_source, last_source) of the sending node
  int last_source = 0;
  uint64_t bytes = 0;
};

/// One chunk of a message in a ring.
struct Item {
  int message = 0;
  uint32_t chunk = 0;
  uint64_t begin = 0, end = 0;  // of the message
  uint64_t offset = 0;          // in scratch
};

/// Items signalled together. `reuses`: the last earlier round whose ring space this one takes, -1 if none.
struct TwoStageRound {
  size_t first_item = 0, last_item = 0;
  int reuses = -1;
};

struct Schedule {
  std::vector<NodeMessage> messages;
  std::vector<Item> items;
  std::vector<TwoStageRound> rounds;
  bool ring_reused = false;
};

class TwoStageLayout {
 public:
  TwoStageLayout(const topology::Cluster& cluster, const Exchange& exchange, int node,
                 const Parameters& parameters);

  /// What the rank at `local` of this node carries to other nodes, and relays from them.
  Schedule outgoing(int local) const;
  Schedule incoming(int local) const;

  /// Whether ranks of this node send their own blocks only, no sharing.
  bool carries_alone() const;

 private:
  int groups(int source_size) const;
  int carrier(int source_node, int destination_node, int group) const;
  int relay(int source_node, int destination_node, int group) const;
  void add_message(Schedule& schedule, int source_node, int destination_node, int group) const;
  void cut(Schedule& schedule, uint64_t ring_begin) const;

  const topology::Cluster& cluster_;
  const Exchange& exchange_;
  const int node_;
  const int carriers_;
  uint64_t send_ring_begin_ = 0, recv_ring_begin_ = 0, ring_bytes_ = 0, chunk_bytes_ = 0;
};

/// Bytes of the smallest scratch with which a node of `local_size` ranks can run two_stage.
uint64_t two_stage_minimum_scratch(int local_size, const Parameters& parameters);

}  // namespace epccl::algorithms
