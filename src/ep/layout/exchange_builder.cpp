#include <algorithm>
#include <optional>
#include <utility>

#include "ep/layout/block_cutter.hpp"
#include "ep/layout/layout.hpp"

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
  ExchangeBuilder(const LayoutView& layout, std::shared_ptr<plan::RowTables> tables)
      : layout_(layout), cluster_(layout.cluster), slots_(layout.slots), tables_(std::move(tables)) {}

  Result<TokenExchange> build() && {
    if (!layout_.fixed()) tables_->rows.reserve(most_rows());
    add_outgoing();
    add_incoming();
    exchange_.own = relayed(layout_.own());
    if (damaged_)
      return error(
          Code::remote_error,
          "the layout message of rank {} is damaged: a token for a rank is not among those for its node",
          *damaged_);
    exchange_.tables = tables_;
    return std::move(exchange_);
  }

  /// The streams of the node's other ranks to this one.
  std::vector<TokenStream> fetched() && {
    std::vector<TokenStream> streams;
    for (const int member : layout_.members())
      if (member != layout_.rank) streams.push_back(relayed(layout_.fetched(member)));
    return streams;
  }

 private:
  /// Of a token, in the stream at hand.
  struct Place {
    static constexpr uint32_t nowhere = UINT32_MAX;
    uint32_t row = nowhere;
    uint32_t block = 0;
  };

  /// Places that all lists together have.
  size_t most_rows() const {
    const auto listed = [this](const RankRows& rows) {
      return slots_.by_expert() ? 2 * rows.entries.size() : rows.tokens.size();
    };
    size_t most = 0;
    for (int rank = 0; rank < cluster_.ranks(); ++rank) {
      const RankRows own = layout_.routing.to_rank(rank);
      most += cluster_.node_of(rank) == layout_.node() ? listed(own) : own.tokens.size();
    }
    for (const SourceLayout& source : layout_.sources)
      if (source.relayed || layout_.strategy == Strategy::flat)
        for (const RankRows& rows : source.rows) most += listed(rows);
    return most;
  }

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
    if (layout_.strategy != Strategy::gather) stream.tokens = add_sent_tokens(stream.blocks, tokens);
    exchange_.outgoing.push_back(std::move(stream));
  }

  uint32_t add_sent_tokens(const Blocks& blocks, std::span<const uint32_t> tokens) {
    if (!layout_.fixed()) return add_list(tokens);
    const uint32_t list = add_places(blocks.places());
    layout_.for_each_row(layout_.rank, tokens,
                         [&](uint32_t token, uint32_t row) { tables_->rows[list + row] = token; });
    return list;
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
    const BlockCutter cut = layout_.cutter(from.source);
    stream.blocks = layout_.fixed() ? number_fixed_rows(from) : number_rows(from, cut);
    for (size_t i = 0; i < from.served.size(); ++i) {
      const size_t local = from.first_local + i;
      const RankRows& rows = from.served[i];
      if (rows.tokens.empty() && !layout_.fixed()) continue;
      if (slots_.by_expert())
        stream.deliveries.push_back(delivery_by_expert(from.source, local, rows, cut));
      else if (layout_.fixed())
        stream.deliveries.push_back(fixed_delivery_by_token(from.source, local, rows, cut));
      else
        stream.deliveries.push_back(delivery_by_token(from.source, local, rows, cut));
    }
    return stream;
  }

  /// Notes where the stream's tokens are. Returns its blocks.
  Blocks number_rows(const LayoutView::Relayed& from, const BlockCutter& cut) {
    const uint32_t tokens = layout_.header(from.source).tokens;
    places_.resize(std::max<size_t>(places_.size(), tokens));
    Place* const places = places_.data();
    if (from.every_token) {
      for (uint32_t token = 0; token < tokens; ++token) places[token] = {token, cut.block_of(token)};
      return {cut.cut_all()};
    }
    std::fill_n(places, tokens, Place{});
    return {cut.cut(from.tokens.size(), [&](size_t row) {
      const uint32_t token = from.tokens[row], block = cut.block_of(token);
      places[token] = {static_cast<uint32_t>(row), block};
      return block;
    })};
  }

  Blocks number_fixed_rows(const LayoutView::Relayed& from) {
    const uint32_t tokens = layout_.header(from.source).tokens;
    places_.resize(std::max<size_t>(places_.size(), tokens));
    if (from.every_token)
      for (uint32_t token = 0; token < tokens; ++token) places_[token].row = token;
    else
      layout_.for_each_row(from.source, from.tokens,
                           [this](uint32_t token, uint32_t row) { places_[token].row = row; });
    return blocks_of(from.source, from.tokens, from.every_token);
  }

  /// `rows`: some of the stream's rows, or'ed.
  void check_rows(int source, uint32_t rows) {
    if (rows == Place::nowhere && !damaged_) damaged_ = source;
  }

  Delivery delivery_by_token(int source, size_t local, const RankRows& rows, const BlockCutter& cut) {
    Delivery delivery;
    delivery.rank = layout_.members()[local];
    delivery.rows = add_places(static_cast<uint32_t>(rows.tokens.size()));
    delivery.first_slot = slots_.first_row(source, local);
    uint32_t* const out = tables_->rows.data() + delivery.rows;
    const Place* const places = places_.data();
    uint32_t seen = 0;
    delivery.blocks.begin = cut.cut(rows.tokens.size(), [&](size_t i) {
      const Place place = places[rows.tokens[i]];
      out[i] = place.row;
      seen |= place.row;
      return place.block;
    });
    check_rows(source, seen);
    return delivery;
  }

  Delivery fixed_delivery_by_token(int source, size_t local, const RankRows& rows, const BlockCutter& cut) {
    Delivery delivery;
    delivery.rank = layout_.members()[local];
    delivery.rows = add_places(cut.tokens());
    delivery.slots = add_places(cut.tokens());
    FixedList list(*tables_, cut, 1);
    uint32_t slot = slots_.first_row(source, local);
    for (const uint32_t token : rows.tokens) {
      const uint32_t place = list.take(token);
      tables_->rows[delivery.rows + place] = places_[token].row;
      tables_->rows[delivery.slots + place] = slot++;
    }
    delivery.blocks = std::move(list).blocks();
    return delivery;
  }

  Delivery delivery_by_expert(int source, size_t local, const RankRows& rows, const BlockCutter& cut) {
    if (layout_.fixed()) return fixed_delivery_by_expert(source, local, rows, cut);
    Delivery delivery;
    delivery.rank = layout_.members()[local];
    listed_.clear();
    slots_listed_.clear();
    uint32_t seen = 0;
    for_each_entry(slots_, source, local, layout_.experts.first(delivery.rank), rows,
                   [&](uint32_t row, uint32_t slot, Entry) {
                     if (slot == NodeSlots::dropped) return;
                     const uint32_t token = rows.tokens[row];
                     seen |= places_[token].row;
                     cut.before(token, static_cast<uint32_t>(listed_.size()), delivery.blocks.begin);
                     listed_.push_back(places_[token].row);
                     slots_listed_.push_back(slot);
                   });
    cut.finish(static_cast<uint32_t>(listed_.size()), delivery.blocks.begin);
    check_rows(source, seen);
    delivery.rows = add_list(listed_);
    delivery.slots = add_list(slots_listed_);
    return delivery;
  }

  Delivery fixed_delivery_by_expert(int source, size_t local, const RankRows& rows, const BlockCutter& cut) {
    Delivery delivery;
    delivery.rank = layout_.members()[local];
    FixedList list(*tables_, cut, slots_.rules().max_topk);
    delivery.rows = add_places(cut.tokens() * slots_.rules().max_topk);
    delivery.slots = add_places(cut.tokens() * slots_.rules().max_topk);
    for_each_entry(slots_, source, local, layout_.experts.first(delivery.rank), rows,
                   [&](uint32_t row, uint32_t slot, Entry) {
                     if (slot == NodeSlots::dropped) return;
                     const uint32_t place = list.take(rows.tokens[row]);
                     tables_->rows[delivery.rows + place] = places_[rows.tokens[row]].row;
                     tables_->rows[delivery.slots + place] = slot;
                   });
    delivery.blocks = std::move(list).blocks();
    return delivery;
  }

  const LayoutView& layout_;
  const topology::Cluster& cluster_;
  const NodeSlots& slots_;
  TokenExchange exchange_;
  const std::shared_ptr<plan::RowTables> tables_;
  std::vector<Place> places_;   // by token
  std::optional<int> damaged_;  // a source that contradicts itself
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

LayoutView::Relayed LayoutView::fetched(int source) const {
  const auto local = static_cast<size_t>(cluster.local_of(rank));
  return {source, {sources[static_cast<size_t>(source)].rows_of(local)}, local, {}, true};
}

Result<TokenExchange> make_exchange(const LayoutView& layout) {
  return ExchangeBuilder(layout, std::make_shared<plan::RowTables>()).build();
}

void add_fetched(const LayoutView& layout, TokenExchange& exchange) {
  auto tables = std::make_shared<plan::RowTables>(*exchange.tables);
  exchange.fetched = ExchangeBuilder(layout, tables).fetched();
  exchange.fetched_tables = std::move(tables);
}

}  // namespace epccl::ep
