#include "plan/link_bytes.hpp"

#include <algorithm>

namespace epccl::plan {
namespace {

using RankPair = LinkBytes::RankPair;

/// Sorts one source's messages by destination and adds up those to the same one; appends the sums to `out`.
void append_sums(std::vector<RankPair>& of_source, std::vector<RankPair>& out) {
  std::ranges::sort(of_source, {}, &RankPair::destination);
  const size_t first = out.size();
  for (const RankPair& pair : of_source) {
    if (out.size() == first || out.back().destination != pair.destination) {
      out.push_back(pair);
    } else {
      out.back().bytes += pair.bytes;
      out.back().messages += pair.messages;
    }
  }
}

}  // namespace

uint64_t LinkBytes::egress(int node) const {
  uint64_t bytes = 0;
  for (int peer = 0; peer < nodes; ++peer) bytes += between_nodes(node, peer);
  return bytes;
}

uint64_t LinkBytes::ingress(int node) const {
  uint64_t bytes = 0;
  for (int peer = 0; peer < nodes; ++peer) bytes += between_nodes(peer, node);
  return bytes;
}

LinkBytes count_link_bytes(const Plan& plan) {
  const auto nodes = static_cast<size_t>(plan.cluster.nodes());
  LinkBytes links;
  links.nodes = plan.cluster.nodes();
  links.node_pair_bytes.assign(nodes * nodes, 0);
  links.messages_sent.assign(plan.ranks.size(), 0);
  links.messages_received.assign(plan.ranks.size(), 0);
  links.copied_in_node.assign(nodes, 0);
  links.copied_to_peers.assign(nodes, 0);
  std::vector<RankPair> of_source;
  for (const RankPlan& rank : plan.ranks) {
    const auto node = static_cast<size_t>(plan.cluster.node_of(rank.rank));
    of_source.clear();
    for (const Step& step : rank.steps) {
      if (step.kind == Kind::send) {
        of_source.push_back({rank.rank, step.peer, step.bytes, 1});
        links.messages += 1;
        links.network_bytes += step.bytes;
        links.node_pair_bytes[node * nodes + static_cast<size_t>(plan.cluster.node_of(step.peer))] +=
            step.bytes;
        links.messages_sent[static_cast<size_t>(rank.rank)] += 1;
        links.messages_received[static_cast<size_t>(step.peer)] += 1;
      } else if (step.kind == Kind::copy) {
        links.copied_bytes += step.total_bytes();
        links.copied_in_node[node] += step.total_bytes();
        if (step.source.rank != step.destination.rank) links.copied_to_peers[node] += step.total_bytes();
      }
    }
    append_sums(of_source, links.rank_pairs);
  }
  return links;
}

}  // namespace epccl::plan
