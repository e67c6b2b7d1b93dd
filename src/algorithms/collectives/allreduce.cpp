// allreduce: everything is added up for everybody.
//
//   two_level   each carrier adds up its slice of what its node has. Along the rails carriers exchange these partial results and
//               each adds them up; with `split` each finishes one node's share of a piece, and sends that to the others. Then it
//               gives the slice to its node. With `tree` they exchange sums in log2(nodes) steps instead (doubling.hpp).
//   flat        each rank finishes a slice of its own: what it gets for that from ranks of other nodes is their inputs
#include "algorithms/collectives/doubling.hpp"
#include "algorithms/partners.hpp"

namespace epccl::algorithms {
namespace {

using plan::Builder;
using plan::Location;

/// What the nodes have of a chunk, in the order of nodes, so that whoever adds it up makes the same of it.
struct NodeParts {
  Part own;
  std::vector<Part> all;
  std::vector<uint32_t> sent;  // steps
};

/// Sends each node its range of the chunk, and receives what the others have of this node's.
template <typename RangeOf>
NodeParts exchange_parts(RoundBuilder& b, Reducer& reducer, int position, const Range& chunk,
                         RangeOf range_of) {
  const int nodes = b.cluster.nodes(), node = b.node();
  NodeParts parts{reducer.node_part(0, chunk), std::vector<Part>(static_cast<size_t>(nodes)), {}};
  const Range mine = range_of(node);
  for (int distance = 1; distance < nodes; ++distance) {
    const int to = (node + distance) % nodes, from = (node + nodes - distance) % nodes;
    const Range theirs = range_of(to);
    if (theirs.bytes() > 0)
      parts.sent.push_back(
          reducer.send(rank_at(b.cluster, to, position), parts.own, theirs.begin, theirs.bytes()));
    if (mine.bytes() > 0)
      parts.all[static_cast<size_t>(from)] =
          reducer.received(rank_at(b.cluster, from, position), mine.bytes(), reducer.is_raw(from));
  }
  Part& own = parts.all[static_cast<size_t>(node)];
  own = parts.own;
  own.at.offset += mine.begin;
  return parts;
}

/// Every carrier of the rail gets all partial results, and makes the same of them.
void finish_everywhere(RoundBuilder& b, Reducer& reducer, int position, const Range& chunk) {
  NodeParts parts = exchange_parts(b, reducer, position, chunk, [&](int) { return Range{0, chunk.bytes()}; });
  // In place, an input that is sent must not be overwritten.
  if (!parts.own.raw) parts.sent.clear();
  reducer.finish_for_node(parts.all, chunk, std::move(parts.sent));
}

/// Each node's carrier finishes that node's share of the chunk, and sends it to the others of the rail.
void finish_share(RoundBuilder& b, Reducer& reducer, int position, const Range& chunk) {
  const int nodes = b.cluster.nodes(), node = b.node();
  const auto share = [&](int of) { return part_of({0, chunk.bytes()}, of, nodes, b.call.unit); };
  const auto in_piece = [&](const Range& part) {
    return Range{chunk.begin + part.begin, chunk.begin + part.end};
  };
  NodeParts parts = exchange_parts(b, reducer, position, chunk, share);
  std::vector<uint32_t> read = std::move(parts.sent);  // the own part, all of it
  if (parts.own.made != Builder::none) read.push_back(parts.own.made);
  uint32_t made = Builder::none;
  const Range mine = in_piece(share(node));
  if (mine.bytes() > 0) made = reducer.finish_for_node(parts.all, mine, {});
  for (int distance = 1; distance < nodes; ++distance) {
    const int to = (node + distance) % nodes, from = (node + nodes - distance) % nodes;
    const Range theirs = in_piece(share(from));
    if (mine.bytes() > 0)
      b.exchange.uses_scratch(b.messages.send(rank_at(b.cluster, to, position),
                                              b.exchange.result(0, mine.begin), mine.bytes(),
                                              std::array{made}));
    if (theirs.bytes() > 0)
      b.exchange.deliver(
          0, theirs,
          b.messages.recv(rank_at(b.cluster, from, position), b.exchange.result(0, theirs.begin),
                          theirs.bytes(), b.after_scratch(read)));
  }
}

void finish_on_node(RoundBuilder& b, Reducer& reducer, const Range& chunk) {
  b.exchange.deliver(
      0, chunk,
      reducer.add_up(reducer.inputs(0, chunk), b.exchange.result(0, chunk.begin), chunk.bytes(), true));
}

RoundEnd append_two_level(RoundBuilder& b, Reducer& reducer) {
  const Carriers carriers(b, 0);
  for (int slice = 0; slice < carriers.count(); ++slice) {
    if (carriers.rank(b.node(), slice) != b.rank()) continue;
    reducer.for_each_piece(carriers.range(slice), [&](const Range& chunk) {
      if (b.cluster.nodes() == 1)
        finish_on_node(b, reducer, chunk);
      else if (b.parameters.variant == Variant::tree)
        finish_by_doubling(b, reducer, carriers.position(slice), chunk);
      else if (b.parameters.variant == Variant::split)
        finish_share(b, reducer, carriers.position(slice), chunk);
      else
        finish_everywhere(b, reducer, carriers.position(slice), chunk);
    });
  }
  b.exchange.publish();
  for (int slice = 0; slice < carriers.count(); ++slice)
    b.exchange.fetch(static_cast<size_t>(b.cluster.local_of(carriers.rank(b.node(), slice))), 0,
                     carriers.range(slice));
  return b.exchange.leave();
}

RoundEnd append_flat_allreduce(RoundBuilder& b, Reducer& reducer) {
  const int ranks = b.cluster.ranks();
  const auto slice = [&](int rank) { return part_of(b.piece(), rank, ranks, b.call.unit); };
  std::vector<std::vector<uint32_t>> sent(static_cast<size_t>(ranks));
  const std::vector<int> receivers = remote_partners(b.cluster, b.rank(), 1);
  const std::vector<int> senders = remote_partners(b.cluster, b.rank(), -1);
  for (const int to : receivers)
    reducer.for_each_piece(slice(to), [&](const Range& chunk) {
      sent[static_cast<size_t>(to)].push_back(
          b.messages.send(to, b.own_input(0, chunk.begin), chunk.bytes(), {}));
    });
  reducer.for_each_piece(slice(b.rank()), [&](const Range& chunk) {
    std::vector<Part> parts = reducer.inputs(0, chunk);
    for (const int from : senders) parts.push_back(reducer.received(from, chunk.bytes(), true));
    const Location to = b.exchange.result(0, chunk.begin);
    const uint32_t made = reducer.add_up(parts, to, chunk.bytes(), true);
    b.exchange.deliver(0, chunk, made);
    for (const int rank : receivers)
      b.exchange.uses_scratch(b.messages.send(rank, to, chunk.bytes(), std::array{made}));
  });
  for (const int from : senders) {
    // In place: only where this rank's own part has left already. It was cut alike.
    auto left = sent[static_cast<size_t>(from)].begin();
    reducer.for_each_piece(slice(from), [&](const Range& chunk) {
      b.messages.recv(from, b.own_output(0, chunk.begin), chunk.bytes(),
                      std::array{*left++, b.exchange.opened()});
    });
  }
  b.exchange.publish();
  for (size_t local = 0; local < b.exchange.size(); ++local)
    b.exchange.fetch(local, 0, slice(b.exchange.member(local)));
  return b.exchange.leave();
}

}  // namespace

RoundEnd append_allreduce(RoundBuilder& b) {
  b.exchange.open_all(1);
  Reducer reducer(b);
  if (b.parameters.form == Form::flat && b.cluster.nodes() > 1) return append_flat_allreduce(b, reducer);
  if (b.parameters.variant != Variant::alone || b.cluster.nodes() > 1 || !b.round.staged)
    return append_two_level(b, reducer);
  reducer.add_up(reducer.inputs(0, b.piece()), b.own_output(0, 0), b.piece().bytes(), true);
  return b.exchange.leave();
}

}  // namespace epccl::algorithms
