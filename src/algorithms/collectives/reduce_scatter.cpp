// reduce_scatter: block r of all ranks is added up for rank r.
//
//   two_level   rank of the rail                                   rank r
//     add up block r of the node's ranks --> scratch --send------> recv, from every other node
//                                                                  add up with what the own node has --> output
//     together: one rank of a node does that for all its ranks, in one message to each other node
//   flat        every rank of another node sends its block r as it is
#include "algorithms/collectives/reducer.hpp"
#include "algorithms/partners.hpp"

namespace epccl::algorithms {
namespace {

void send_flat(RoundBuilder& b, const Range& chunk) {
  for (const int to : remote_partners(b.cluster, b.rank(), 1))
    b.messages.send(to, b.own_input(to, chunk.begin), chunk.bytes(), {});
}

void send_along_rail(RoundBuilder& b, Reducer& reducer, const Range& chunk) {
  for (int distance = 1; distance < b.cluster.nodes(); ++distance)
    for (const int to : b.cluster.members((b.node() + distance) % b.cluster.nodes()))
      if (rank_at(b.cluster, b.node(), b.cluster.local_of(to)) == b.rank())
        reducer.send(to, reducer.node_part(to, chunk), 0, chunk.bytes());
}

std::vector<Part> receive_flat(RoundBuilder& b, Reducer& reducer, const Range& chunk) {
  std::vector<Part> parts;
  for (const int from : remote_partners(b.cluster, b.rank(), -1))
    parts.push_back(reducer.received(from, chunk.bytes(), true));
  return parts;
}

std::vector<Part> receive_along_rail(RoundBuilder& b, Reducer& reducer, const Range& chunk) {
  std::vector<Part> parts;
  for (int distance = 1; distance < b.cluster.nodes(); ++distance) {
    const int from = (b.node() + distance) % b.cluster.nodes();
    parts.push_back(reducer.received(rank_at(b.cluster, from, b.cluster.local_of(b.rank())), chunk.bytes(),
                                     reducer.is_raw(from)));
  }
  return parts;
}

/// The one rank of each node that sends and receives for all of it, to and from every other node (where speaker.hpp has a rank for each),
/// and where that lies in its scratch: a place for each other node and direction, with a block for each rank.
class Leaders {
 public:
  Leaders(RoundBuilder& b, Reducer& reducer) : b_(b), reducer_(reducer) {}

  bool is_own() const { return rank(b_.node()) == b_.rank(); }

  void send(int distance) {
    const int to = (b_.node() + distance) % b_.cluster.nodes();
    for (const RankRun& run : runs_of(b_.cluster, to)) {
      const Range blocks{0, bytes_of(run)};
      plan::Location at = b_.own_input(run.first, 0);
      uint32_t made = plan::Builder::none;
      if (!reducer_.is_raw(b_.node())) {
        at = b_.builder.scratch(offset(distance, run.local));
        made = reducer_.add_up(reducer_.inputs(run.first, blocks), at, blocks.bytes(), false);
      }
      b_.exchange.uses_scratch(b_.messages.send(rank(to), at, blocks.bytes(), std::array{made}));
    }
  }

  void receive(int distance) {
    const int from = (b_.node() + distance) % b_.cluster.nodes();
    for (const RankRun& run : runs_of(b_.cluster, b_.node()))
      received_.push_back(b_.messages.recv(
          rank(from), b_.builder.scratch(offset(b_.cluster.nodes() - 1 + distance, run.local)), bytes_of(run),
          b_.after_scratch({})));
  }

  void give() { b_.exchange.give(received_); }

  /// What came for this rank.
  void add_parts(std::vector<Part>& parts) {
    const auto own = static_cast<size_t>(b_.cluster.local_of(b_.rank()));
    const int leader = rank(b_.node());
    const auto local = static_cast<size_t>(b_.cluster.local_of(leader));
    for (int distance = 1; distance < b_.cluster.nodes(); ++distance) {
      const int from = (b_.node() + distance) % b_.cluster.nodes();
      const uint64_t at = offset(b_.cluster.nodes() - 1 + distance, own);
      parts.push_back({{leader, plan::Buffer::scratch, at}, plan::Builder::none, reducer_.is_raw(from)});
      if (!is_own()) parts.back().made = b_.exchange.given(local);
    }
  }
  /// Steps before what came may be read by the leader itself.
  const std::vector<uint32_t>& received() const { return received_; }

 private:
  int rank(int node) const { return rank_at(b_.cluster, node, 0); }
  uint64_t bytes_of(const RankRun& run) const {
    return static_cast<uint64_t>(run.count) * b_.piece().bytes();
  }
  uint64_t offset(int place, size_t local) const {
    const auto number = static_cast<uint64_t>(place - 1);
    return b_.round.network +
           (number * static_cast<uint64_t>(b_.cluster.max_local_size()) + local) * b_.piece().bytes();
  }

  RoundBuilder& b_;
  Reducer& reducer_;
  std::vector<uint32_t> received_;
};

RoundEnd append_together(RoundBuilder& b) {
  Reducer reducer(b);
  Leaders leaders(b, reducer);
  for (int distance = 1; distance < b.cluster.nodes() && leaders.is_own(); ++distance) {
    leaders.send(distance);
    leaders.receive(distance);
  }
  if (leaders.is_own()) leaders.give();
  std::vector<Part> parts = reducer.inputs(b.rank(), b.piece());
  leaders.add_parts(parts);
  reducer.add_up(parts, b.own_output(0, 0), b.piece().bytes(), true, leaders.received());
  return b.exchange.leave();
}

}  // namespace

RoundEnd append_reduce_scatter(RoundBuilder& b) {
  b.exchange.open_all(b.cluster.ranks());
  if (is_together(b.cluster, b.call, b.parameters)) return append_together(b);
  const bool flat = b.parameters.form == Form::flat;
  Reducer reducer(b);
  reducer.for_each_piece(b.piece(), [&](const Range& chunk) {
    flat ? send_flat(b, chunk) : send_along_rail(b, reducer, chunk);
    std::vector<Part> parts = reducer.inputs(b.rank(), chunk);
    for (Part& part : flat ? receive_flat(b, reducer, chunk) : receive_along_rail(b, reducer, chunk))
      parts.push_back(std::move(part));
    reducer.add_up(parts, b.own_output(0, chunk.begin), chunk.bytes(), true);
  });
  return b.exchange.leave();
}

}  // namespace epccl::algorithms
