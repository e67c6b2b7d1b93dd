// allgather and gather: what every rank has goes to all, or to one.
//
//   allgather, two_level   staged: one rank of a node has all that the others have for another node, in one message
//                          direct: every rank sends its own block to the rank of its rail, which gives it to its node
//   gather, two_level      staged: one rank of a node sends what its node has; direct: as flat
#include <span>

#include "algorithms/collectives/building.hpp"
#include "algorithms/partners.hpp"
#include "algorithms/speaker.hpp"

namespace epccl::algorithms {
namespace {

using plan::Builder;
using plan::Location;

/// Calls `use(first rank, number of ranks)` for each message from a node. Blocks go together where they lie one behind the other
/// at the receiver: in its scratch, or, if they are whole, in its output.
template <typename Use>
void for_each_message_of(const RoundBuilder& b, int node, bool to_scratch, Use use) {
  for (const RankRun& run : runs_of(b.cluster, node)) {
    const int step = to_scratch || b.piece().bytes() == b.round.block ? run.count : 1;
    for (int i = 0; i < run.count; i += step) use(run.first + i, step);
  }
}

uint64_t bytes_of(const RoundBuilder& b, int blocks) {
  return static_cast<uint64_t>(blocks) * b.piece().bytes();
}

/// Sends the node's blocks, which lie in own scratch, `collected` there by a step each.
void send_node_blocks(RoundBuilder& b, int to, bool to_scratch, const std::vector<Location>& blocks,
                      const std::vector<uint32_t>& collected) {
  for_each_message_of(b, b.node(), to_scratch, [&](int first, int count) {
    const auto local = static_cast<size_t>(b.cluster.local_of(first));
    const std::span sent = std::span(collected).subspan(local, static_cast<size_t>(count));
    b.exchange.uses_scratch(b.messages.send(to, blocks[local], bytes_of(b, count), sent));
  });
}

/// The node's blocks, one behind the other in own scratch.
std::vector<Location> collect_node_blocks(RoundBuilder& b, std::vector<uint32_t>& collected) {
  std::vector<Location> blocks;
  Location to = b.builder.scratch(b.round.network);
  for (size_t local = 0; local < b.exchange.size(); ++local, to.offset += b.piece().bytes()) {
    const NodeExchange::Readable from = b.exchange.input(local, 0, 0);
    collected.push_back(b.builder.copy(0, from.at, to, b.piece().bytes(), b.after_scratch({from.after})));
    blocks.push_back(to);
  }
  return blocks;
}

void exchange_node_blocks(RoundBuilder& b) {
  const int nodes = b.cluster.nodes(), node = b.node();
  std::vector<Location> blocks;
  std::vector<uint32_t> collected;
  for (int distance = 1; distance < nodes; ++distance) {
    const int to = (node + distance) % nodes, from = (node + nodes - distance) % nodes;
    if (speaker(b.cluster, node, to) == b.rank()) {
      if (blocks.empty()) blocks = collect_node_blocks(b, collected);
      send_node_blocks(b, speaker(b.cluster, to, node), b.cluster.local_size(to) > 1, blocks, collected);
    }
    if (speaker(b.cluster, node, from) == b.rank())
      for_each_message_of(b, from, b.exchange.size() > 1, [&](int first, int count) {
        const uint32_t received = b.messages.recv(speaker(b.cluster, from, node), b.exchange.result(first, 0),
                                                  bytes_of(b, count), b.exchange.after());
        for (int i = 0; i < count; ++i) b.exchange.deliver(first + i, b.piece(), received);
      });
  }
  b.exchange.publish();
  for (int distance = 1; distance < nodes; ++distance) {
    const int from = (node + nodes - distance) % nodes;
    const auto speaking = static_cast<size_t>(b.cluster.local_of(speaker(b.cluster, node, from)));
    for (const int source : b.cluster.members(from)) b.exchange.fetch(speaking, source, b.piece());
  }
}

/// Along rails, every rank for itself.
void send_own_block(RoundBuilder& b) {
  const int nodes = b.cluster.nodes(), local = static_cast<int>(b.exchange.local());
  for (int distance = 1; distance < nodes; ++distance)
    b.for_each_message(b.piece(), [&](const Range& chunk) {
      b.messages.send(rank_at(b.cluster, (b.node() + distance) % nodes, local), b.own_input(0, chunk.begin),
                      chunk.bytes(), {});
    });
}

void receive_blocks_of_rail(RoundBuilder& b) {
  const int nodes = b.cluster.nodes(), node = b.node();
  for (int distance = 1; distance < nodes; ++distance) {
    const int from = (node + nodes - distance) % nodes;
    for (const int source : b.cluster.members(from)) {
      if (rank_at(b.cluster, node, b.cluster.local_of(source)) != b.rank()) continue;
      b.for_each_message(b.piece(), [&](const Range& chunk) {
        const uint32_t received =
            b.messages.recv(source, b.exchange.result(source, chunk.begin), chunk.bytes(), {});
        b.exchange.deliver(source, chunk, received);
      });
    }
  }
}

void exchange_flat(RoundBuilder& b) {
  for (const int from : remote_partners(b.cluster, b.rank(), -1))
    b.messages.recv(from, b.own_output(from, 0), b.piece().bytes(), {});
  for (const int to : remote_partners(b.cluster, b.rank(), 1))
    b.messages.send(to, b.own_input(0, 0), b.piece().bytes(), {});
}

/// The root's part of a gather from another node, where that sends every block by itself or all by one rank.
void gather_from_node(RoundBuilder& b, int node, bool together) {
  if (together) {
    const int from = rank_at(b.cluster, node, b.cluster.local_of(b.call.root));
    for_each_message_of(b, node, false, [&](int first, int count) {
      b.messages.recv(from, b.own_output(first, 0), bytes_of(b, count), {});
    });
    return;
  }
  for (const int source : b.cluster.members(node))
    b.for_each_message(b.piece(), [&](const Range& chunk) {
      b.messages.recv(source, b.own_output(source, chunk.begin), chunk.bytes(), {});
    });
}

}  // namespace

RoundEnd append_allgather(RoundBuilder& b) {
  b.exchange.open_all(1);
  const bool flat = b.parameters.form == Form::flat, alone = b.cluster.nodes() == 1;
  const bool along_rails = !alone && !flat && !b.round.staged;
  // First, so that the network is at work while the node copies.
  if (flat) exchange_flat(b);
  if (along_rails) send_own_block(b);
  for (size_t i = 0; i < b.exchange.size(); ++i) {
    const size_t local = (b.exchange.local() + i) % b.exchange.size();
    b.exchange.pull(local, 0, b.exchange.member(local), b.piece());
  }
  if (along_rails) receive_blocks_of_rail(b);
  if (!alone && !flat && b.round.staged) exchange_node_blocks(b);
  return b.exchange.leave();
}

RoundEnd append_gather(RoundBuilder& b) {
  const int root = b.call.root, root_node = b.cluster.node_of(root);
  // Only messages of at most the network's part of scratch can be put together there.
  const bool together = b.parameters.form == Form::two_level && b.round.staged;
  const auto root_local = static_cast<size_t>(b.cluster.local_of(root));
  if (b.node() != root_node) {
    if (together) {
      b.exchange.open_all(1);
      if (rank_at(b.cluster, b.node(), b.cluster.local_of(root)) == b.rank()) {
        std::vector<uint32_t> collected;
        const std::vector<Location> blocks = collect_node_blocks(b, collected);
        send_node_blocks(b, root, false, blocks, collected);
      }
      return b.exchange.leave();
    }
    b.for_each_message(b.piece(), [&](const Range& chunk) {
      b.messages.send(root, b.own_input(0, chunk.begin), chunk.bytes(), {});
    });
    return {};
  }
  if (b.rank() != root) {
    if (b.round.staged) {
      b.exchange.open_all(1);
      return b.exchange.leave();
    }
    b.exchange.push(root_local, b.rank(), b.piece(), b.own_input(0, 0), Builder::none);
    return b.exchange.leave(true, {});
  }
  // In a staged round the root reads what the others put down; else they write.
  if (!b.round.staged) b.exchange.open();
  std::vector<size_t> others;
  for (size_t local = 0; local < b.exchange.size(); ++local) {
    if (local != root_local) others.push_back(local);
    if (local == root_local || b.round.staged) b.exchange.pull(local, 0, b.exchange.member(local), b.piece());
  }
  for (int node = 0; node < b.cluster.nodes(); ++node)
    if (node != root_node) gather_from_node(b, node, together);
  return b.exchange.leave(b.round.staged, others);
}

}  // namespace epccl::algorithms
