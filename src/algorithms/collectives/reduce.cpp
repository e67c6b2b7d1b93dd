// reduce: everything is added up for one rank.
//
//   two_level   each carrier adds up its slice of what its node has, and sends that to the carrier of the root's node, which
//               finishes it and gives it to the root. With `relay` it goes from node to node instead, with `tree` along a binomial
//               tree of nodes, and each adds its own.
//   flat        every rank of another node sends all to the root
#include "algorithms/collectives/reducer.hpp"

namespace epccl::algorithms {
namespace {

/// What comes to this rank for a chunk of its slice, from the nodes behind it.
void receive_parts(RoundBuilder& b, Reducer& reducer, int position, uint64_t bytes,
                   std::vector<Part>& parts) {
  const int nodes = b.cluster.nodes();
  for (const int place : branch_of(nodes, b.parameters, place_of(b, b.node())).after) {
    const int node = node_at(b, place);
    const bool is_last = branch_of(nodes, b.parameters, place).after.empty();
    parts.push_back(
        reducer.received(rank_at(b.cluster, node, position), bytes, is_last && reducer.is_raw(node)));
  }
}

void send_part(RoundBuilder& b, Reducer& reducer, int position, const Range& chunk) {
  const Branch branch = branch_of(b.cluster.nodes(), b.parameters, place_of(b, b.node()));
  const int to = rank_at(b.cluster, node_at(b, branch.before), position);
  if (branch.after.empty()) {
    reducer.send(to, reducer.node_part(0, chunk), 0, chunk.bytes());
    return;
  }
  std::vector<Part> received;
  receive_parts(b, reducer, position, chunk.bytes(), received);
  std::vector<Part> parts = reducer.inputs(0, chunk);
  parts.insert(parts.end(), received.begin(), received.end());
  reducer.send(to, reducer.partial(parts, chunk.bytes()), 0, chunk.bytes());
}

/// On the root's node: finishes a chunk, and gives it to the root.
void finish(RoundBuilder& b, Reducer& reducer, int position, const Range& chunk) {
  std::vector<Part> parts = reducer.inputs(0, chunk);
  receive_parts(b, reducer, position, chunk.bytes(), parts);
  const auto root_local = static_cast<size_t>(b.cluster.local_of(b.call.root));
  if (b.rank() == b.call.root) {
    reducer.add_up(parts, b.own_output(0, chunk.begin), chunk.bytes(), true);
  } else if (b.round.staged) {
    b.exchange.deliver_to(root_local, 0, chunk,
                          reducer.add_up(parts, b.exchange.result(0, chunk.begin), chunk.bytes(), true));
  } else {
    SlotRing::Slot slot = reducer.place();
    const uint32_t made = reducer.add_up(parts, slot.at, chunk.bytes(), true, slot.after);
    reducer.used_by(slot, b.exchange.push(root_local, 0, chunk, slot.at, made));
  }
}

void reduce_flat(RoundBuilder& b, Reducer& reducer, const Range& chunk) {
  if (b.rank() != b.call.root) {
    b.messages.send(b.call.root, b.own_input(0, chunk.begin), chunk.bytes(), {});
    return;
  }
  std::vector<Part> parts = reducer.inputs(0, chunk);
  for (int rank = 0; rank < b.cluster.ranks(); ++rank)
    if (!b.on_my_node(rank)) parts.push_back(reducer.received(rank, chunk.bytes(), true));
  reducer.add_up(parts, b.own_output(0, chunk.begin), chunk.bytes(), true);
}

RoundEnd append_flat_reduce(RoundBuilder& b, Reducer& reducer) {
  const bool at_root = b.on_my_node(b.call.root), is_root = b.rank() == b.call.root;
  if (at_root && !is_root) b.exchange.open_all(1);
  if (is_root || !at_root)
    reducer.for_each_piece(b.piece(), [&](const Range& chunk) { reduce_flat(b, reducer, chunk); });
  if (!at_root) return {};
  const auto root_local = static_cast<size_t>(b.cluster.local_of(b.call.root));
  return is_root ? b.exchange.leave(true, {}) : b.exchange.leave(false, std::array{root_local});
}

}  // namespace

RoundEnd append_reduce(RoundBuilder& b) {
  Reducer reducer(b);
  if (b.parameters.form == Form::flat) return append_flat_reduce(b, reducer);
  b.exchange.open_all(1);
  const bool at_root = b.on_my_node(b.call.root);
  const Carriers carriers(b, b.cluster.local_of(b.call.root));
  for (int slice = 0; slice < carriers.count(); ++slice) {
    if (carriers.rank(b.node(), slice) == b.rank())
      reducer.for_each_piece(carriers.range(slice), [&](const Range& chunk) {
        at_root ? finish(b, reducer, carriers.position(slice), chunk)
                : send_part(b, reducer, carriers.position(slice), chunk);
      });
  }
  if (at_root && b.rank() != b.call.root) b.exchange.publish();
  if (b.rank() == b.call.root)
    for (int slice = 0; slice < carriers.count(); ++slice)
      b.exchange.fetch(static_cast<size_t>(b.cluster.local_of(carriers.rank(b.node(), slice))), 0,
                       carriers.range(slice));
  return b.exchange.leave();
}

}  // namespace epccl::algorithms
