#include "plan/link_bytes.hpp"

#include <algorithm>

#include "plan/rows.hpp"

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

struct Copied {
  uint64_t bytes = 0;
  uint64_t to_peers = 0;
};

/// What a step copies in memory. A row that a sum reads or writes crosses to a peer where it is not in the
/// buffers of the rank that adds.
Copied copied_by(const RankPlan& plan, const Step& step) {
  if (step.kind == Kind::copy || step.kind == Kind::move_rows)
    return {step.total_bytes(), step.source.rank == step.destination.rank ? 0 : step.total_bytes()};
  if (step.kind == Kind::reduce) {
    const auto from_peers = static_cast<uint64_t>(std::ranges::count_if(
        sources_of(plan, step), [&](const RowSource& source) { return source.at.rank != plan.rank; }));
    const uint64_t to_peer = step.destination.rank == plan.rank ? 0 : 1;
    return {(step.source_count + 1) * step.bytes, (from_peers + to_peer) * step.bytes};
  }
  if (step.kind != Kind::reduce_rows) return {};
  const auto terms = terms_of(plan, step);
  const std::span<const RowSource> sources = sources_of(plan, step);
  const auto from_peers = std::ranges::count_if(
      terms, [&](const RowTerm& term) { return sources[term.source].at.rank != plan.rank; });
  const uint64_t written_to_peers = step.destination.rank == plan.rank ? 0 : step.rows;
  return {(terms.size() + step.rows) * step.bytes,
          (static_cast<uint64_t>(from_peers) + written_to_peers) * step.bytes};
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
      if (is_fetched(plan, step)) continue;
      if (step.kind == Kind::send) {
        if (step.rows == 0) continue;
        of_source.push_back({rank.rank, step.peer, step.total_bytes(), 1});
        links.messages += 1;
        links.network_bytes += step.total_bytes();
        links.node_pair_bytes[node * nodes + static_cast<size_t>(plan.cluster.node_of(step.peer))] +=
            step.total_bytes();
        links.messages_sent[static_cast<size_t>(rank.rank)] += 1;
        links.messages_received[static_cast<size_t>(step.peer)] += 1;
      } else {
        const Copied copied = copied_by(rank, step);
        links.copied_bytes += copied.bytes;
        links.copied_in_node[node] += copied.bytes;
        links.copied_to_peers[node] += copied.to_peers;
      }
    }
    append_sums(of_source, links.rank_pairs);
  }
  return links;
}

}  // namespace epccl::plan
