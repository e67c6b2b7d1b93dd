#include "ep/layout/token_stream_places.hpp"

#include <algorithm>

namespace epccl::ep {
namespace {

using algorithms::TokenExchange;
using algorithms::TokenStream;
using device::kernels::no_row;
using device::kernels::StreamRows;

class Places {
 public:
  Places(const LayoutView& layout, const TokenExchange& exchange) : layout_(layout), exchange_(exchange) {}

  TokenStreamPlaces make() && {
    made_.to_ranks = layout_.strategy == Strategy::flat;
    made_.relays.assign(layout_.sources.size(), no_row);
    for (const TokenStream& stream : exchange_.outgoing) add_sent(stream);
    for (const TokenStream& stream : exchange_.incoming) {
      made_.relays[static_cast<size_t>(stream.source)] = static_cast<uint32_t>(made_.received.size());
      add_received(stream, layout_.strategy == Strategy::gather, stream.first_sum);
    }
    // What goes back for its own tokens no step of a plan makes by itself: final sums begin with it.
    add_received(exchange_.own, true, no_row);
    for (int node = 0; node < layout_.cluster.nodes(); ++node) add_parts(node);
    made_.first_final_sum = exchange_.first_final_sum;
    made_.counts = exchange_.tables->counts.size();
    made_.rows = exchange_.tables->rows.size();
    made_.sums = uint64_t{made_.first_final_sum} + exchange_.own.blocks.places();
    return std::move(made_);
  }

 private:
  StreamRows rows_of(const TokenStream& stream, bool every_token) {
    made_.most_blocks = std::max(made_.most_blocks, static_cast<uint32_t>(stream.blocks.size()));
    const uint32_t block_tokens =
        layout_.header(stream.source).block_tokens[static_cast<size_t>(layout_.strategy)];
    return {static_cast<uint32_t>(stream.source), std::max(block_tokens, 1U), stream.blocks.counts,
            every_token ? 1U : 0U};
  }

  void add_sent(const TokenStream& stream) {
    const int to = made_.to_ranks ? stream.relay : layout_.cluster.node_of(stream.relay);
    made_.sent.push_back({rows_of(stream, layout_.strategy == Strategy::gather), static_cast<uint32_t>(to),
                          stream.tokens == TokenStream::every_token ? no_row : stream.tokens});
  }

  void add_received(const TokenStream& stream, bool every_token, uint32_t first_sum) {
    const auto number = static_cast<uint32_t>(made_.received.size());
    made_.received.push_back({rows_of(stream, every_token), first_sum});
    for (const algorithms::Delivery& delivery : stream.deliveries)
      made_.deliveries.push_back({number, static_cast<uint32_t>(layout_.cluster.local_of(delivery.rank)),
                                  delivery.rows, delivery.slots, delivery.blocks.counts});
  }

  // By node, then rank, as add_sums() goes.
  void add_parts(int node) {
    const auto here = static_cast<uint32_t>(layout_.members().size());
    if (node == layout_.node()) {
      made_.parts.push_back({no_row, 0, 1});
      return;
    }
    for (const int member : layout_.cluster.members(node)) {
      const auto stream = std::ranges::find(exchange_.outgoing, member, &TokenStream::relay);
      if (stream == exchange_.outgoing.end()) continue;
      const auto number = static_cast<uint32_t>(stream - exchange_.outgoing.begin());
      made_.parts.push_back({number, here + number, 0});
    }
    made_.parts.back().ends_node = 1;
  }

  const LayoutView& layout_;
  const TokenExchange& exchange_;
  TokenStreamPlaces made_;
};

}  // namespace

TokenStreamPlaces places_of_streams(const LayoutView& layout, const TokenExchange& exchange) {
  return Places(layout, exchange).make();
}

// A step's list is a block's part of the list of what goes on to its rank. Lists of slots lie between those.
std::vector<runtime::HandOutRows> hand_outs_of(const runtime::DeviceProgram& program,
                                               const TokenStreamPlaces& places, const SlotRules& rules) {
  std::vector<device::kernels::DeliveredList> lists = places.deliveries;
  std::ranges::sort(lists, {}, &device::kernels::DeliveredList::rows);
  const std::vector<uint32_t>& counts = program.plan.tables->counts;
  std::vector<runtime::HandOutRows> hand_outs;
  for (const plan::HandOut& each : program.hand_outs) {
    const plan::Step& step = program.plan.steps[each.first].step;
    const auto list =
        std::ranges::upper_bound(lists, step.source_list, {}, &device::kernels::DeliveredList::rows) - 1;
    const StreamRows& stream = places.received[list->stream].rows;
    const uint64_t first = uint64_t{list->stream} * rules.max_tokens + step.source_first_row;
    hand_outs.push_back({first * rules.max_topk,
                         counts[stream.counts + step.source_first_row / stream.block_tokens],
                         rules.max_topk});
  }
  return hand_outs;
}

uint64_t most_handed_out(const topology::Cluster& cluster, int rank, std::optional<Strategy> forced) {
  const bool is_relay = !forced || *forced != Strategy::flat;
  return is_relay && cluster.local_size(cluster.node_of(rank)) > 1 ? sources_of_relay(cluster, rank) : 0;
}

StreamLimits most_streams(const topology::Cluster& cluster, int rank, std::optional<Strategy> forced) {
  const int node = cluster.node_of(rank);
  const auto here = static_cast<uint64_t>(cluster.local_size(node));
  const uint64_t elsewhere = static_cast<uint64_t>(cluster.ranks()) - here;
  StreamLimits most;
  if (!forced || *forced != Strategy::flat) {
    const uint64_t relayed = sources_of_relay(cluster, rank);
    most = {static_cast<uint64_t>(cluster.nodes()) - 1, relayed, relayed * here};
  }
  if (!forced || *forced == Strategy::flat)
    most = {std::max(most.sent, elsewhere), std::max(most.received, elsewhere),
            std::max(most.deliveries, elsewhere)};
  // And its own.
  ++most.received;
  most.deliveries += here;
  return most;
}

}  // namespace epccl::ep
