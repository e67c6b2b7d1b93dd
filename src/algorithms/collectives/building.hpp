// What the builders of the collectives share; only for them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "algorithms/collectives/collective.hpp"
#include "algorithms/collectives/node_exchange.hpp"
#include "algorithms/collectives/slot_ring.hpp"
#include "algorithms/collectives/split.hpp"

namespace epccl::algorithms {

/// Messages between two ranks are numbered as they are built: both build them in the same order.
class Messages {
 public:
  Messages(plan::Builder& builder, int ranks)
      : builder_(builder), sent_(static_cast<size_t>(ranks)), received_(static_cast<size_t>(ranks)) {}

  uint32_t send(int peer, const plan::Location& from, uint64_t bytes, plan::Builder::Dependencies after) {
    return builder_.send(peer, sent_[static_cast<size_t>(peer)]++, from, bytes, after);
  }
  uint32_t recv(int peer, const plan::Location& to, uint64_t bytes, plan::Builder::Dependencies after) {
    return builder_.recv(peer, received_[static_cast<size_t>(peer)]++, to, bytes, after);
  }

 private:
  plan::Builder& builder_;
  std::vector<uint32_t> sent_, received_;
};

/// One round of one rank's plan.
struct RoundBuilder {
  plan::Builder& builder;
  const topology::Cluster& cluster;
  const CollectiveSpec& call;
  const CollectiveParameters& parameters;
  const Round& round;
  Messages& messages;
  NodeExchange exchange;

  RoundBuilder(plan::Builder& plan_builder, Messages& numbered, NodeExchange::Posts& posts,
               const topology::Cluster& ranks, const CollectiveSpec& what,
               const CollectiveParameters& constants, const Round& part, std::vector<uint32_t> after)
      : builder(plan_builder),
        cluster(ranks),
        call(what),
        parameters(constants),
        round(part),
        messages(numbered),
        exchange(plan_builder, ranks, part, posts, std::move(after)) {}

  int rank() const { return builder.rank(); }
  int node() const { return cluster.node_of(rank()); }
  bool on_my_node(int other) const { return cluster.same_node(other, rank()); }
  Range piece() const { return {0, round.piece.bytes()}; }
  /// Of a rank's own buffers, byte `at` of the round's piece.
  plan::Location own_input(int block, uint64_t at) const { return builder.input(in_block(block, at)); }
  plan::Location own_output(int block, uint64_t at) const { return builder.output(in_block(block, at)); }
  /// What is written first in this round's part of scratch waits for this as well.
  std::vector<uint32_t> after_scratch(std::vector<uint32_t> steps) const {
    steps.insert(steps.end(), exchange.after().begin(), exchange.after().end());
    return steps;
  }
  /// Cuts `range` into messages of this many bytes, at most.
  template <typename Use>
  void for_each_message(const Range& range, Use use) const {
    for_each_chunk(range, parameters.chunk_bytes, call.unit, use);
  }

 private:
  uint64_t in_block(int block, uint64_t at) const {
    return static_cast<uint64_t>(block) * round.block + round.piece.begin + at;
  }
};

/// The rank of `node` that stands for local position `position` of another one.
inline int rank_at(const topology::Cluster& cluster, int node, int position) {
  return cluster.rank_at(node, position % cluster.local_size(node));
}

/// Ranks of a node that follow each other in rank order as well.
struct RankRun {
  int first = 0, count = 0;
  size_t local = 0;  // position of `first` on its node
};
std::vector<RankRun> runs_of(const topology::Cluster& cluster, int node);

/// The ranks of a node that share what it adds up and sends, each with a slice of every round.
class Carriers {
 public:
  /// `first`: the local position that has the first slice.
  Carriers(const RoundBuilder& b, int first);

  int count() const { return count_; }
  /// Spread as ranks are over cores: of 3 ranks on 2 cores the first two have one core.
  int position(int slice) const { return first_ + (slice * smallest_ + count_ - 1) / count_; }
  int rank(int node, int slice) const { return rank_at(cluster_, node, position(slice)); }
  Range range(int slice) const { return part_of(piece_, slice, count_, unit_); }

 private:
  const topology::Cluster& cluster_;
  const int first_;
  const Range piece_;
  const uint64_t unit_;
  int count_ = 1, smallest_ = 1;  // of these; ranks of the smallest node
};

/// Parts of one chunk of a result that a rank has to keep in scratch: to send, as received, and as copied from its node.
struct PartCounts {
  size_t sent = 0, received = 0, fetched = 0;
  size_t shares = 1;  // what is received is so large a part of a chunk
  /// All of them together, of a chunk: so many times its units, and so many units more at most, since none is cut.
  uint64_t chunks() const { return sent + fetched + (received + shares - 1) / shares; }
  uint64_t units() const { return shares > 1 ? received : 0; }
};
PartCounts part_counts(const topology::Cluster& cluster, const CollectiveSpec& call,
                       const CollectiveParameters& parameters);

/// How scratch is divided among the parts of chunks that are under way.
struct SumPlaces {
  uint64_t chunk = 0;     // bytes that are added up at once
  uint64_t received = 0;  // bytes of a message that comes for that, at most
  size_t sending = 1, receiving = 1, fetching = 1;
};
/// For results of `piece` bytes.
SumPlaces sum_places(const PartCounts& counts, uint64_t piece, uint64_t unit, uint64_t message_bytes,
                     uint64_t room);

/// What nodes at a place (place_of) give to and get from each other in a call with a root: the places of those next to it.
struct Branch {
  int before = -1;         // towards the root
  std::vector<int> after;  // away from it, those with most behind them first
};
Branch branch_of(int nodes, const CollectiveParameters& parameters, int place);

/// Where a node stands in the row that begins with the root's.
inline int place_of(const RoundBuilder& b, int node) {
  const int nodes = b.cluster.nodes();
  return (node + nodes - b.cluster.node_of(b.call.root)) % nodes;
}
/// The node that stands there.
inline int node_at(const RoundBuilder& b, int place) {
  return (b.cluster.node_of(b.call.root) + place) % b.cluster.nodes();
}

using RoundEnd = std::vector<uint32_t>;  // what the next but one round has to wait for

RoundEnd append_allgather(RoundBuilder& b);
RoundEnd append_gather(RoundBuilder& b);
RoundEnd append_scatter(RoundBuilder& b);
RoundEnd append_broadcast(RoundBuilder& b);
RoundEnd append_reduce_scatter(RoundBuilder& b);
RoundEnd append_allreduce(RoundBuilder& b);
RoundEnd append_reduce(RoundBuilder& b);

}  // namespace epccl::algorithms
