#include <algorithm>
#include <utility>

#include "ep/block_cutter.hpp"
#include "ep/layout.hpp"

namespace epccl::ep {
namespace {

using algorithms::Blocks;
using algorithms::Delivery;
using algorithms::TokenExchange;
using algorithms::TokenStream;

/// Fills a list that is laid out for the longest it can become.
class FixedList {
 public:
  FixedList(plan::RowTables& tables, const BlockCutter& cut, uint32_t per_token)
      : tables_(tables),
        cut_(cut),
        blocks_{cut.lay_out(per_token), static_cast<uint32_t>(tables.counts.size())} {
    tables_.counts.resize(tables_.counts.size() + blocks_.size());
  }

  /// The place of the next entry, which is of `token`.
  uint32_t take(uint32_t token) {
    const uint32_t block = cut_.block_of(token);
    return blocks_.begin[block] + tables_.counts[blocks_.counts + block]++;
  }
  Blocks blocks() && { return std::move(blocks_); }

 private:
  plan::RowTables& tables_;
  const BlockCutter& cut_;
  Blocks blocks_;
};

class ExchangeBuilder {
 public:
  explicit ExchangeBuilder(const LayoutView& layout)
      : layout_(layout), cluster_(layout.cluster), slots_(layout.slots) {}

  TokenExchange build() && {
    add_outgoing();
    add_incoming();
    exchange_.own = relayed(layout_.own());
    exchange_.tables = tables_;
    return std::move(exchange_);
  }

 private:
  uint32_t add_list(std::span<const uint32_t> list) {
    const auto at = static_cast<uint32_t>(tables_->rows.size());
    tables_->rows.insert(tables_->rows.end(), list.begin(), list.end());
    return at;
  }
  uint32_t add_places(uint32_t count) {
    const auto at = static_cast<uint32_t>(tables_->rows.size());
    tables_->rows.resize(at + count);
    return at;
  }

  /// The blocks of the rows of a stream.
  Blocks blocks_of(int source, std::span<const uint32_t> tokens, bool every_token) {
    const BlockCutter cut = layout_.cutter(source);
    if (!layout_.fixed()) return {every_token ? cut.cut_all() : cut.cut(tokens)};
    FixedList list(*tables_, cut, 1);
    if (every_token)
      for (uint32_t token = 0; token < layout_.header(source).tokens; ++token) list.take(token);
    else
      for (const uint32_t token : tokens) list.take(token);
    return std::move(list).blocks();
  }

  // --- as source ---

  void add_sent(int relay, std::span<const uint32_t> tokens) {
    TokenStream stream;
    stream.source = layout_.rank;
    stream.relay = relay;
    stream.blocks = blocks_of(layout_.rank, tokens, layout_.strategy == Strategy::gather);
    if (layout_.strategy != Strategy::gather) {
      stream.tokens = add_places(stream.blocks.places());
      layout_.for_each_row(layout_.rank, tokens,
                           [&](uint32_t token, uint32_t row) { tables_->rows[stream.tokens + row] = token; });
    }
    exchange_.outgoing.push_back(std::move(stream));
  }

  void add_outgoing() {
    const int rank = layout_.rank;
    for (int distance = 1; distance < cluster_.nodes(); ++distance) {
      const int node = (layout_.node() + distance) % cluster_.nodes();
      if (layout_.strategy != Strategy::flat) {
        add_sent(relay_of(cluster_, rank, node), layout_.routing.to_node(node));
        continue;
      }
      for (int i = 0; i < cluster_.local_size(node); ++i) {
        const int receiver =
            cluster_.rank_at(node, (cluster_.local_of(rank) + i) % cluster_.local_size(node));
        add_sent(receiver, layout_.routing.to_rank(receiver).tokens);
      }
    }
  }

  // --- as relay ---

  void add_incoming() {
    for (int distance = 1; distance < cluster_.nodes(); ++distance) {
      const int node = (layout_.node() + cluster_.nodes() - distance) % cluster_.nodes();
      for (const int source : in_order_of_streams(node))
        if (layout_.strategy == Strategy::flat || layout_.sources[static_cast<size_t>(source)].relayed)
          exchange_.incoming.push_back(relayed(layout_.incoming(source)));
    }
  }

  // The sources of a node, in the order in which they get to this rank (the outgoing streams of each have the same one).
  std::vector<int> in_order_of_streams(int node) const {
    std::vector<int> sources = cluster_.members(node);
    if (layout_.strategy != Strategy::flat) return sources;
    const int size = static_cast<int>(layout_.members().size()), own = cluster_.local_of(layout_.rank);
    const auto step = [&](int source) { return ((own - cluster_.local_of(source)) % size + size) % size; };
    std::ranges::stable_sort(sources, {}, step);
    return sources;
  }

  TokenStream relayed(const LayoutView::Relayed& from) {
    TokenStream stream;
    stream.source = from.source;
    stream.relay = layout_.rank;
    stream.blocks = blocks_of(from.source, from.tokens, from.every_token);
    row_of_.resize(std::max<size_t>(row_of_.size(), layout_.header(from.source).tokens));
    layout_.for_each_row(from.source, from.tokens,
                         [this](uint32_t token, uint32_t row) { row_of_[token] = row; });
    const BlockCutter cut = layout_.cutter(from.source);
    for (size_t i = 0; i < from.served.size(); ++i) {
      const size_t local = from.first_local + i;
      const RankRows& rows = from.served[i];
      if (rows.tokens.empty() && !layout_.fixed()) continue;
      if (slots_.by_expert())
        stream.deliveries.push_back(delivery_by_expert(from.source, local, rows, from.every_token, cut));
      else if (layout_.fixed())
        stream.deliveries.push_back(fixed_delivery_by_token(from.source, local, rows, from.every_token, cut));
      else
        stream.deliveries.push_back(delivery_by_token(from.source, local, rows, from.every_token, cut));
    }
    return stream;
  }

  uint32_t row_of(uint32_t token, bool every_token) const { return every_token ? token : row_of_[token]; }

  Delivery delivery_by_token(int source, size_t local, const RankRows& rows, bool every_token,
                             const BlockCutter& cut) {
    Delivery delivery{layout_.members()[local],
                      add_places(static_cast<uint32_t>(rows.tokens.size())),
                      plan::Step::no_list,
                      slots_.first_row(source, local),
                      {cut.cut(rows.tokens)}};
    uint32_t* out = tables_->rows.data() + delivery.rows;
    for (const uint32_t token : rows.tokens) *out++ = row_of(token, every_token);
    return delivery;
  }

  Delivery fixed_delivery_by_token(int source, size_t local, const RankRows& rows, bool every_token,
                                   const BlockCutter& cut) {
    Delivery delivery;
    delivery.rank = layout_.members()[local];
    delivery.rows = add_places(cut.tokens());
    delivery.slots = add_places(cut.tokens());
    FixedList list(*tables_, cut, 1);
    uint32_t slot = slots_.first_row(source, local);
    for (const uint32_t token : rows.tokens) {
      const uint32_t place = list.take(token);
      tables_->rows[delivery.rows + place] = row_of(token, every_token);
      tables_->rows[delivery.slots + place] = slot++;
    }
    delivery.blocks = std::move(list).blocks();
    return delivery;
  }

  Delivery delivery_by_expert(int source, size_t local, const RankRows& rows, bool every_token,
                              const BlockCutter& cut) {
    if (layout_.fixed()) return fixed_delivery_by_expert(source, local, rows, every_token, cut);
    Delivery delivery;
    delivery.rank = layout_.members()[local];
    listed_.clear();
    slots_listed_.clear();
    for_each_entry(slots_, source, local, layout_.experts.first(delivery.rank), rows,
                   [&](uint32_t row, uint32_t slot, Entry) {
                     if (slot == NodeSlots::dropped) return;
                     const uint32_t token = rows.tokens[row];
                     cut.before(token, static_cast<uint32_t>(listed_.size()), delivery.blocks.begin);
                     listed_.push_back(row_of(token, every_token));
                     slots_listed_.push_back(slot);
                   });
    cut.finish(static_cast<uint32_t>(listed_.size()), delivery.blocks.begin);
    delivery.rows = add_list(listed_);
    delivery.slots = add_list(slots_listed_);
    return delivery;
  }

  Delivery fixed_delivery_by_expert(int source, size_t local, const RankRows& rows, bool every_token,
                                    const BlockCutter& cut) {
    Delivery delivery;
    delivery.rank = layout_.members()[local];
    FixedList list(*tables_, cut, slots_.rules().max_topk);
    delivery.rows = add_places(cut.tokens() * slots_.rules().max_topk);
    delivery.slots = add_places(cut.tokens() * slots_.rules().max_topk);
    for_each_entry(slots_, source, local, layout_.experts.first(delivery.rank), rows,
                   [&](uint32_t row, uint32_t slot, Entry) {
                     if (slot == NodeSlots::dropped) return;
                     const uint32_t place = list.take(rows.tokens[row]);
                     tables_->rows[delivery.rows + place] = row_of(rows.tokens[row], every_token);
                     tables_->rows[delivery.slots + place] = slot;
                   });
    delivery.blocks = std::move(list).blocks();
    return delivery;
  }

  const LayoutView& layout_;
  const topology::Cluster& cluster_;
  const NodeSlots& slots_;
  TokenExchange exchange_;
  std::shared_ptr<plan::RowTables> tables_ = std::make_shared<plan::RowTables>();
  std::vector<uint32_t> row_of_;  // of a stream, by token
  std::vector<uint32_t> listed_, slots_listed_;
};

}  // namespace

LayoutView::Relayed LayoutView::incoming(int source) const {
  const SourceLayout& from = sources[static_cast<size_t>(source)];
  const auto local = static_cast<size_t>(cluster.local_of(rank));
  if (strategy == Strategy::flat)
    return {source, {from.rows_of(local)}, local, from.rows_of(local).tokens, false};
  return {source, from.rows, 0, from.node_tokens, strategy == Strategy::gather};
}

LayoutView::Relayed LayoutView::own() const {
  Relayed own{rank, {}, 0, {}, true};
  for (const int member : members()) own.served.push_back(routing.to_rank(member));
  return own;
}

TokenExchange make_exchange(const LayoutView& layout) {
  return ExchangeBuilder(layout).build();
}

}  // namespace epccl::ep
