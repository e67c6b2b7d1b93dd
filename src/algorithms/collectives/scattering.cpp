// scatter and broadcast: what one rank has goes to the others.
//
//   scatter, two_level    staged: a node's blocks in one message to one of its ranks; direct: as flat
//   broadcast, two_level  one rank of every other node receives, and gives to its node; from the root, with `relay` from node to
//                         node, with `tree` along a binomial tree of nodes
#include "algorithms/collectives/building.hpp"

namespace epccl::algorithms {
namespace {

/// The rank that receives for a node which is not the root's.
int receiver(const RoundBuilder& b, int node) {
  return rank_at(b.cluster, node, b.cluster.local_of(b.call.root));
}

void send_blocks(RoundBuilder& b, int node, bool together) {
  for (const RankRun& run : runs_of(b.cluster, node)) {
    // In a round that is not all of a block, blocks do not lie one behind the other.
    const int step = together && b.round.piece.bytes() == b.round.block ? run.count : 1;
    for (int i = 0; i < run.count; i += step)
      b.for_each_message({0, b.piece().bytes() * static_cast<uint64_t>(step)}, [&](const Range& chunk) {
        b.messages.send(together ? receiver(b, node) : run.first + i, b.own_input(run.first + i, chunk.begin),
                        chunk.bytes(), {});
      });
  }
}

/// A node's blocks come to one rank's scratch, where each of the node fetches its own.
void receive_for_node(RoundBuilder& b) {
  std::vector<uint32_t> received;
  for (const RankRun& run : runs_of(b.cluster, b.node())) {
    const int step = b.round.piece.bytes() == b.round.block ? run.count : 1;
    for (int i = 0; i < run.count; i += step)
      b.for_each_message({0, b.piece().bytes() * static_cast<uint64_t>(step)}, [&](const Range& chunk) {
        received.push_back(b.messages.recv(b.call.root, b.exchange.staged_input(run.first + i, chunk.begin),
                                           chunk.bytes(), b.exchange.after()));
      });
  }
  b.exchange.open_received(received);
  b.exchange.copy_out(b.exchange.staged_input(b.rank(), 0), 0, b.piece(), received);
}

void broadcast_on_root_node(RoundBuilder& b) {
  if (b.rank() == b.call.root) b.exchange.open_all(1);
  b.exchange.pull(static_cast<size_t>(b.cluster.local_of(b.call.root)), 0, 0, b.piece());
}

/// The ranks that `rank` gets everything from and gives everything to, on other nodes.
struct Neighbours {
  int before = -1;
  std::vector<int> after;
};
Neighbours neighbours(const RoundBuilder& b) {
  Neighbours result;
  const int nodes = b.cluster.nodes(), root = b.call.root, root_node = b.cluster.node_of(root);
  const auto speaks = [&](int node) { return node == root_node ? root : receiver(b, node); };
  if (speaks(b.node()) != b.rank()) return result;
  const Branch branch = branch_of(nodes, b.parameters, place_of(b, b.node()));
  const auto at = [&](int place) { return speaks(node_at(b, place)); };
  if (branch.before >= 0) result.before = at(branch.before);
  for (const int place : branch.after) result.after.push_back(at(place));
  return result;
}

void broadcast_flat(RoundBuilder& b) {
  if (b.rank() == b.call.root)
    for (int distance = 1; distance < b.cluster.ranks(); ++distance) {
      const int to = (b.rank() + distance) % b.cluster.ranks();
      if (b.on_my_node(to)) continue;
      b.for_each_message(b.piece(), [&](const Range& chunk) {
        b.messages.send(to, b.own_input(0, chunk.begin), chunk.bytes(), {});
      });
    }
  if (!b.on_my_node(b.call.root))
    b.for_each_message(b.piece(), [&](const Range& chunk) {
      b.messages.recv(b.call.root, b.own_output(0, chunk.begin), chunk.bytes(), {});
    });
}

/// On a node that is not the root's: one receives, passes on, and gives to the others.
void broadcast_on_other_node(RoundBuilder& b, const Neighbours& others) {
  const int receiving = receiver(b, b.node());
  if (!b.round.staged && receiving != b.rank()) b.exchange.open();
  if (receiving == b.rank()) {
    b.for_each_message(b.piece(), [&](const Range& chunk) {
      const uint32_t received = b.messages.recv(others.before, b.exchange.result(0, chunk.begin),
                                                chunk.bytes(), b.exchange.after());
      for (const int next : others.after)
        b.exchange.uses_scratch(
            b.messages.send(next, b.exchange.result(0, chunk.begin), chunk.bytes(), std::array{received}));
      b.exchange.deliver(0, chunk, received);
    });
    b.exchange.publish();
  }
  b.exchange.fetch(static_cast<size_t>(b.cluster.local_of(receiving)), 0, b.piece());
}

}  // namespace

RoundEnd append_scatter(RoundBuilder& b) {
  const int root = b.call.root, root_node = b.cluster.node_of(root);
  const bool together = b.parameters.form == Form::two_level && b.round.staged;
  const auto root_local = static_cast<size_t>(b.cluster.local_of(root));
  if (b.node() == root_node) {
    if (b.rank() == root) b.exchange.open(b.cluster.members(root_node));
    b.exchange.pull(root_local, b.rank(), 0, b.piece());
    if (b.rank() == root)
      for (int node = 0; node < b.cluster.nodes(); ++node)
        if (node != root_node) send_blocks(b, node, together);
    if (b.rank() != root) return b.exchange.leave(true, {});
    std::vector<size_t> others;
    for (size_t local = 0; local < b.exchange.size(); ++local)
      if (local != root_local) others.push_back(local);
    return b.exchange.leave(false, others);
  }
  if (!together) {
    b.for_each_message(b.piece(), [&](const Range& chunk) {
      b.messages.recv(root, b.own_output(0, chunk.begin), chunk.bytes(), {});
    });
    return {};
  }
  const int receiving = receiver(b, b.node());
  if (receiving == b.rank())
    receive_for_node(b);
  else
    b.exchange.pull(static_cast<size_t>(b.cluster.local_of(receiving)), b.rank(), 0, b.piece());
  return b.exchange.leave();
}

RoundEnd append_broadcast(RoundBuilder& b) {
  const int root = b.call.root, root_node = b.cluster.node_of(root);
  const bool flat = b.parameters.form == Form::flat;
  if (b.node() == root_node) {
    broadcast_on_root_node(b);
    if (flat) broadcast_flat(b);
    if (b.rank() != root) return b.exchange.leave(true, {});
    if (!flat)
      for (const int next : neighbours(b).after)
        b.for_each_message(b.piece(), [&](const Range& chunk) {
          b.messages.send(next, b.own_input(0, chunk.begin), chunk.bytes(), {});
        });
    std::vector<size_t> others;
    for (size_t local = 0; local < b.exchange.size(); ++local)
      if (local != b.exchange.local()) others.push_back(local);
    return b.exchange.leave(false, others);
  }
  if (flat) {
    broadcast_flat(b);
    return {};
  }
  broadcast_on_other_node(b, neighbours(b));
  if (receiver(b, b.node()) == b.rank()) return b.exchange.leave(true, {});
  const auto receiving = static_cast<size_t>(b.cluster.local_of(receiver(b, b.node())));
  return b.exchange.leave(false, std::array{receiving});
}

}  // namespace epccl::algorithms
