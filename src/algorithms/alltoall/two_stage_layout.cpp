#include "algorithms/alltoall/two_stage_layout.hpp"

#include <algorithm>

#include "algorithms/alltoall/local.hpp"

namespace epccl::algorithms {
namespace {

// A round is less than two chunks long (its items before the last fill less than one), and a ring holds two rounds, so that one is filled while the other is read.
constexpr uint64_t chunks_per_ring = 4;

// Chunks of one message before the next message's turn. Long turns keep each link to one pair of nodes; all messages are
// to be under way soon, though, so that no relay waits for its first.
constexpr uint64_t chunks_per_turn = 4;

}  // namespace

uint64_t two_stage_minimum_scratch(int local_size, const Parameters& parameters) {
  return local_scratch_bytes(local_size, parameters) + 2 * chunks_per_ring;
}

TwoStageLayout::TwoStageLayout(const topology::Cluster& cluster, const Exchange& exchange, int node,
                               const Parameters& parameters)
    : cluster_(cluster), exchange_(exchange), node_(node), carriers_(parameters.carriers) {
  const uint64_t local_bytes = local_scratch_bytes(cluster.max_local_size(), parameters);
  ring_bytes_ = (parameters.scratch_bytes - local_bytes) / 2;
  send_ring_begin_ = local_bytes;
  recv_ring_begin_ = local_bytes + ring_bytes_;
  chunk_bytes_ = std::min(parameters.chunk_bytes, ring_bytes_ / chunks_per_ring);
}

int TwoStageLayout::groups(int source_size) const {
  return carriers_ == 0 ? source_size : std::min(carriers_, source_size);
}

bool TwoStageLayout::carries_alone() const {
  return groups(cluster_.local_size(node_)) == cluster_.local_size(node_);
}

// With one group per rank the carrier is the source itself and the relay its rail mate. With fewer, pairs of nodes are
// spread over local positions; a symmetric rule, so that on equal nodes carrier and relay are on one rail.
int TwoStageLayout::carrier(int source_node, int destination_node, int group) const {
  const int size = cluster_.local_size(source_node);
  return groups(size) == size ? group : (group + source_node + destination_node) % size;
}

int TwoStageLayout::relay(int source_node, int destination_node, int group) const {
  const int size = cluster_.local_size(destination_node);
  return groups(cluster_.local_size(source_node)) == cluster_.local_size(source_node)
             ? group % size
             : (group + source_node + destination_node) % size;
}

void TwoStageLayout::add_message(Schedule& schedule, int source_node, int destination_node, int group) const {
  const int size = cluster_.local_size(source_node), count = groups(size);
  NodeMessage message;
  message.first_source = (group * size + count - 1) / count;
  message.last_source = ((group + 1) * size + count - 1) / count;
  if (source_node == node_) {
    message.other_node = destination_node;
    message.peer_rank = cluster_.rank_at(destination_node, relay(source_node, destination_node, group));
  } else {
    message.other_node = source_node;
    message.peer_rank = cluster_.rank_at(source_node, carrier(source_node, destination_node, group));
  }
  for (int local = message.first_source; local < message.last_source; ++local)
    for (const int destination : cluster_.members(destination_node))
      message.bytes += exchange_.bytes(cluster_.rank_at(source_node, local), destination);
  if (message.bytes > 0) schedule.messages.push_back(message);
}

Schedule TwoStageLayout::outgoing(int local) const {
  Schedule schedule;
  const int nodes = cluster_.nodes();
  for (int distance = 1; distance < nodes; ++distance) {
    const int other = (node_ + distance) % nodes;
    for (int group = 0; group < groups(cluster_.local_size(node_)); ++group)
      if (carrier(node_, other, group) == local) add_message(schedule, node_, other, group);
  }
  cut(schedule, send_ring_begin_);
  return schedule;
}

Schedule TwoStageLayout::incoming(int local) const {
  Schedule schedule;
  const int nodes = cluster_.nodes();
  for (int distance = 1; distance < nodes; ++distance) {
    const int other = (node_ + nodes - distance) % nodes;
    for (int group = 0; group < groups(cluster_.local_size(other)); ++group)
      if (relay(other, node_, group) == local) add_message(schedule, other, node_, group);
  }
  cut(schedule, recv_ring_begin_);
  return schedule;
}

void TwoStageLayout::cut(Schedule& schedule, uint64_t ring_begin) const {
  uint64_t longest = 0;
  for (const NodeMessage& message : schedule.messages) longest = std::max(longest, message.bytes);
  uint64_t round_bytes = chunk_bytes_;  // full: the first item opens a round
  uint64_t position = 0;                // on a line that the ring is wound from
  std::vector<uint64_t> round_begin;
  for (uint64_t turn = 0; turn * chunks_per_turn * chunk_bytes_ < longest; ++turn) {
    for (size_t m = 0; m < schedule.messages.size(); ++m) {
      for (uint64_t chunk = turn * chunks_per_turn; chunk < (turn + 1) * chunks_per_turn; ++chunk) {
        const uint64_t begin = chunk * chunk_bytes_;
        if (begin >= schedule.messages[m].bytes) break;
        const uint64_t end = std::min(schedule.messages[m].bytes, begin + chunk_bytes_);
        if (round_bytes >= chunk_bytes_) {
          // A round is never cut by the ring's end.
          if (position % ring_bytes_ + 2 * chunk_bytes_ > ring_bytes_)
            position += ring_bytes_ - position % ring_bytes_;
          const int reused_before = schedule.rounds.empty() ? -1 : schedule.rounds.back().reuses;
          schedule.rounds.push_back({schedule.items.size(), schedule.items.size(), reused_before});
          round_begin.push_back(position);
          round_bytes = 0;
        }
        schedule.items.push_back({static_cast<int>(m), static_cast<uint32_t>(chunk), begin, end,
                                  ring_begin + position % ring_bytes_});
        schedule.rounds.back().last_item = schedule.items.size();
        position += end - begin;
        round_bytes += end - begin;
        // Rounds that began a ring's length before this byte had the same space.
        int& reuses = schedule.rounds.back().reuses;
        while (round_begin[static_cast<size_t>(reuses + 1)] + ring_bytes_ < position) ++reuses;
        schedule.ring_reused = schedule.ring_reused || reuses >= 0;
      }
    }
  }
}

}  // namespace epccl::algorithms
