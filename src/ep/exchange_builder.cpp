#include <algorithm>
#include <utility>

#include "ep/block_cutter.hpp"
#include "ep/layout.hpp"
#include "ep/sum_builder.hpp"

namespace epccl::ep {
namespace {

using algorithms::Blocks;
using algorithms::Delivery;
using algorithms::TokenExchange;
using algorithms::TokenStream;
using plan::RowTerm;

/// Fills a list that is laid out for the longest it can become.
class FixedList {
 public:
  FixedList(plan::RowTables& tables, const BlockCutter& cut, uint32_t per_token)
      : tables_(tables), cut_(cut), blocks_{cut.lay_out(per_token), static_cast<uint32_t>(tables.counts.size())} {
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
  ExchangeBuilder(const topology::Cluster& cluster, const ExpertMap& experts, int rank, Strategy strategy,
                  const Routing& routing, const NodeSlots& slots, std::span<const SourceLayout> sources, Sizes sizes)
      : cluster_(cluster),
        experts_(experts),
        rank_(rank),
        node_(cluster.node_of(rank)),
        strategy_(strategy),
        routing_(routing),
        slots_(slots),
        sources_(sources),
        fixed_(sizes == Sizes::from_maxima),
        members_(cluster.members(node_)),
        stream_of_(static_cast<size_t>(strategy == Strategy::flat ? cluster.ranks() : cluster.nodes())) {}

  TokenExchange build() && {
    add_outgoing();
    add_incoming();
    std::vector<RankRows> own;
    for (const int member : members_) own.push_back(routing_.to_rank(member));
    exchange_.own = relayed(rank_, own, 0, {}, true);
    add_final_sums();
    tables_->sum_begin.push_back(static_cast<uint32_t>(tables_->terms.size()));
    exchange_.tables = tables_;
    return std::move(exchange_);
  }

 private:
  const SourceHeader& header(int source) const { return sources_[static_cast<size_t>(source)].header; }
  BlockCutter cutter(int source) const {
    return {fixed_ ? slots_.rules().max_tokens : header(source).tokens, header(source).block_tokens[static_cast<size_t>(strategy_)]};
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

  /// The blocks of a stream's rows.
  Blocks blocks_of(const BlockCutter& cut, uint32_t source_tokens, std::span<const uint32_t> tokens, bool every_token) {
    if (!fixed_) return {every_token ? cut.cut_all() : cut.cut(tokens)};
    FixedList list(*tables_, cut, 1);
    if (every_token)
      for (uint32_t token = 0; token < source_tokens; ++token) list.take(token);
    else
      for (const uint32_t token : tokens) list.take(token);
    return std::move(list).blocks();
  }

  /// use(token, row) for each row of a stream that has one for each of `tokens`.
  template <typename Use>
  void for_each_row(const BlockCutter& cut, std::span<const uint32_t> tokens, Use use) const {
    if (!fixed_) {
      for (uint32_t row = 0; row < tokens.size(); ++row) use(tokens[row], row);
      return;
    }
    uint32_t row = 0;
    for (const uint32_t token : tokens) {
      row = std::max(row, cut.first_token(cut.block_of(token)));
      use(token, row++);
    }
  }

  template <typename Use>
  void for_each_place(const Blocks& blocks, Use use) const {
    for (size_t block = 0; block < blocks.size(); ++block)
      for (uint32_t i = 0; i < blocks.taken(block, *tables_); ++i) use(blocks.begin[block] + i);
  }

  // --- as source ---

  void add_sent(int relay, std::span<const uint32_t> tokens) {
    TokenStream stream;
    stream.source = rank_;
    stream.relay = relay;
    const BlockCutter cut = cutter(rank_);
    stream.blocks = blocks_of(cut, header(rank_).tokens, tokens, strategy_ == Strategy::gather);
    if (strategy_ != Strategy::gather) {
      stream.tokens = add_places(stream.blocks.places());
      for_each_row(cut, tokens, [&](uint32_t token, uint32_t row) { tables_->rows[stream.tokens + row] = token; });
    }
    exchange_.outgoing.push_back(std::move(stream));
  }

  void add_outgoing() {
    for (int distance = 1; distance < cluster_.nodes(); ++distance) {
      const int node = (node_ + distance) % cluster_.nodes();
      if (strategy_ != Strategy::flat) {
        stream_of_[static_cast<size_t>(node)] = exchange_.outgoing.size();
        add_sent(relay_of(cluster_, rank_, node), routing_.to_node(node));
        continue;
      }
      for (int i = 0; i < cluster_.local_size(node); ++i) {
        const int receiver = cluster_.rank_at(node, (cluster_.local_of(rank_) + i) % cluster_.local_size(node));
        stream_of_[static_cast<size_t>(receiver)] = exchange_.outgoing.size();
        add_sent(receiver, routing_.to_rank(receiver).tokens);
      }
    }
  }

  // --- as relay ---

  void add_incoming() {
    const auto local = static_cast<size_t>(cluster_.local_of(rank_));
    for (int distance = 1; distance < cluster_.nodes(); ++distance) {
      const int node = (node_ + cluster_.nodes() - distance) % cluster_.nodes();
      for (const int source : in_order_of_streams(node)) {
        const SourceLayout& from = sources_[static_cast<size_t>(source)];
        if (strategy_ == Strategy::flat) {
          const RankRows& own = from.rows_of(local);
          exchange_.incoming.push_back(relayed(source, {&own, 1}, local, own.tokens, false));
        } else if (from.relayed) {
          exchange_.incoming.push_back(relayed(source, from.rows, 0, from.node_tokens, strategy_ == Strategy::gather));
        }
      }
    }
  }

  // The sources of a node, in the order in which they get to this rank (the outgoing streams of each have the same one).
  std::vector<int> in_order_of_streams(int node) const {
    std::vector<int> sources = cluster_.members(node);
    if (strategy_ != Strategy::flat) return sources;
    const int size = static_cast<int>(members_.size()), own = cluster_.local_of(rank_);
    const auto step = [&](int source) { return ((own - cluster_.local_of(source)) % size + size) % size; };
    std::ranges::stable_sort(sources, {}, step);
    return sources;
  }

  // `served`: what the ranks at `first_local` and on get. `every_token`: the stream has a row for every token, not only for
  // those in `stream_tokens`.
  TokenStream relayed(int source, std::span<const RankRows> served, size_t first_local, std::span<const uint32_t> stream_tokens,
                      bool every_token) {
    const BlockCutter cut = cutter(source);
    TokenStream stream;
    stream.source = source;
    stream.relay = rank_;
    stream.blocks = blocks_of(cut, header(source).tokens, stream_tokens, every_token);
    row_of_.resize(std::max<size_t>(row_of_.size(), header(source).tokens));
    for_each_row(cut, stream_tokens, [this](uint32_t token, uint32_t row) { row_of_[token] = row; });
    positions_.clear();
    for (size_t i = 0; i < served.size(); ++i) {
      if (served[i].tokens.empty() && !fixed_) continue;
      const size_t local = first_local + i;
      if (slots_.by_expert())
        stream.deliveries.push_back(delivery_by_expert(source, local, served[i], every_token, cut));
      else if (fixed_)
        stream.deliveries.push_back(fixed_delivery_by_token(source, local, served[i], every_token, cut));
      else
        stream.deliveries.push_back(delivery_by_token(source, local, served[i], every_token, cut));
    }
    stream.first_sum = add_relay_sums(stream);
    return stream;
  }

  uint32_t row_of(uint32_t token, bool every_token) const { return every_token ? token : row_of_[token]; }

  Delivery delivery_by_token(int source, size_t local, const RankRows& rows, bool every_token, const BlockCutter& cut) {
    Delivery delivery{members_[local], add_places(static_cast<uint32_t>(rows.tokens.size())), plan::Step::no_list,
                      slots_.first_row(source, local), {cut.cut(rows.tokens)}};
    uint32_t* out = tables_->rows.data() + delivery.rows;
    for (const uint32_t token : rows.tokens) *out++ = row_of(token, every_token);
    return delivery;
  }

  Delivery fixed_delivery_by_token(int source, size_t local, const RankRows& rows, bool every_token, const BlockCutter& cut) {
    Delivery delivery;
    delivery.rank = members_[local];
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

  Delivery delivery_by_expert(int source, size_t local, const RankRows& rows, bool every_token, const BlockCutter& cut) {
    if (fixed_) return fixed_delivery_by_expert(source, local, rows, every_token, cut);
    Delivery delivery;
    delivery.rank = members_[local];
    listed_.clear();
    slots_listed_.clear();
    for_each_entry(slots_, source, local, experts_.first(delivery.rank), rows, [&](uint32_t row, uint32_t slot, Entry entry) {
      if (slot == NodeSlots::dropped) return;
      const uint32_t token = rows.tokens[row];
      cut.before(token, static_cast<uint32_t>(listed_.size()), delivery.blocks.begin);
      listed_.push_back(row_of(token, every_token));
      slots_listed_.push_back(slot);
      positions_.push_back(static_cast<uint8_t>(entry.k()));
    });
    cut.finish(static_cast<uint32_t>(listed_.size()), delivery.blocks.begin);
    delivery.rows = add_list(listed_);
    delivery.slots = add_list(slots_listed_);
    return delivery;
  }

  Delivery fixed_delivery_by_expert(int source, size_t local, const RankRows& rows, bool every_token, const BlockCutter& cut) {
    Delivery delivery;
    delivery.rank = members_[local];
    FixedList list(*tables_, cut, slots_.rules().max_topk);
    delivery.rows = add_places(cut.tokens() * slots_.rules().max_topk);
    delivery.slots = add_places(cut.tokens() * slots_.rules().max_topk);
    for_each_entry(slots_, source, local, experts_.first(delivery.rank), rows, [&](uint32_t row, uint32_t slot, Entry entry) {
      if (slot == NodeSlots::dropped) return;
      const uint32_t place = list.take(rows.tokens[row]);
      tables_->rows[delivery.rows + place] = row_of(rows.tokens[row], every_token);
      tables_->rows[delivery.slots + place] = slot;
      positions_.push_back(static_cast<uint8_t>(entry.k()));
    });
    delivery.blocks = std::move(list).blocks();
    return delivery;
  }

  // What this node gives back for each row of a stream. The weights of terms are positions in the top-k.
  uint32_t add_relay_sums(const TokenStream& stream) {
    const uint32_t rows = stream.blocks.places();
    SumBuilder sums(*tables_, rows);
    for (const Delivery& delivery : stream.deliveries) {
      const uint32_t* listed = tables_->rows.data() + delivery.rows;
      for_each_place(delivery.blocks, [&](uint32_t place) { sums.count(listed[place], 1); });
    }
    sums.begin();
    size_t next_position = 0;
    for (const Delivery& delivery : stream.deliveries) {
      const auto local = static_cast<uint16_t>(cluster_.local_of(delivery.rank));
      const uint32_t* listed = tables_->rows.data() + delivery.rows;
      const uint32_t* slots = delivery.slots == plan::Step::no_list ? nullptr : tables_->rows.data() + delivery.slots;
      for_each_place(delivery.blocks, [&](uint32_t place) {
        const uint32_t slot = slots == nullptr ? delivery.first_slot + place : slots[place];
        if (slots_.by_expert())
          sums.add_of_rank(listed[place], slot, local, positions_[next_position++]);
        else
          sums.add(listed[place], {slot, local, RowTerm::unweighted, RowTerm::rank_sum});
      });
    }
    for (uint32_t row = 0; row < rows; ++row) sums.end_node(row);
    return sums.first_sum();
  }

  // --- what comes back to the source ---

  void add_final_sums() {
    const uint32_t tokens = header(rank_).tokens;
    SumBuilder sums(*tables_, exchange_.own.blocks.places());
    for (int node = 0; node < cluster_.nodes(); ++node) count_final(sums, node, tokens);
    sums.begin();
    for (int node = 0; node < cluster_.nodes(); ++node) {
      if (node == node_)
        copy_own_terms(sums, tokens);
      else if (strategy_ == Strategy::flat)
        add_rank_terms(sums, node);
      else
        add_node_terms(sums, node);
    }
    exchange_.first_final_sum = sums.first_sum();
  }

  void count_final(SumBuilder& sums, int node, uint32_t tokens) const {
    if (node == node_) {
      const uint32_t* begin = tables_->sum_begin.data() + exchange_.own.first_sum;
      // The last own sum ends where the terms do so far.
      for (uint32_t token = 0; token < tokens; ++token)
        sums.count(token, (token + 1 < exchange_.own.blocks.places() ? begin[token + 1] : static_cast<uint32_t>(tables_->terms.size())) - begin[token]);
    } else if (strategy_ == Strategy::flat) {
      for (const int member : cluster_.members(node)) sums.count(routing_.to_rank(member).tokens);
    } else {
      sums.count(routing_.to_node(node));
    }
  }

  void copy_own_terms(SumBuilder& sums, uint32_t tokens) {
    for (uint32_t token = 0; token < tokens; ++token) {
      const uint32_t* begin = tables_->sum_begin.data() + exchange_.own.first_sum + token;
      for (uint32_t i = begin[0]; i < begin[1]; ++i) sums.add(token, RowTerm(tables_->terms[i]));
    }
  }

  void add_node_terms(SumBuilder& sums, int node) {
    const auto source = static_cast<uint16_t>(members_.size() + stream_of_[static_cast<size_t>(node)]);
    for_each_row(cutter(rank_), routing_.to_node(node), [&](uint32_t token, uint32_t row) {
      sums.add(token, {strategy_ == Strategy::gather ? token : row, source, RowTerm::unweighted, RowTerm::rank_sum | RowTerm::node_sum});
    });
  }

  void add_rank_terms(SumBuilder& sums, int node) {
    for (const int member : cluster_.members(node)) {
      const auto source = static_cast<uint16_t>(members_.size() + stream_of_[static_cast<size_t>(member)]);
      for_each_row(cutter(rank_), routing_.to_rank(member).tokens, [&](uint32_t token, uint32_t row) {
        sums.add(token, {row, source, RowTerm::unweighted, RowTerm::rank_sum});
      });
    }
    for (const uint32_t token : routing_.to_node(node)) sums.end_node(token);
  }

  const topology::Cluster& cluster_;
  const ExpertMap& experts_;
  const int rank_, node_;
  const Strategy strategy_;
  const Routing& routing_;
  const NodeSlots& slots_;
  std::span<const SourceLayout> sources_;
  const bool fixed_;
  const std::vector<int>& members_;
  TokenExchange exchange_;
  std::shared_ptr<plan::RowTables> tables_ = std::make_shared<plan::RowTables>();
  std::vector<size_t> stream_of_;          // outgoing, by node; flat: by rank
  std::vector<uint32_t> row_of_;           // of a stream, by token
  std::vector<uint32_t> listed_, slots_listed_;
  std::vector<uint8_t> positions_;         // in the top-k, of the entries of a stream's deliveries
};

}  // namespace

algorithms::TokenExchange make_exchange(const topology::Cluster& cluster, const ExpertMap& experts, int rank,
                                        Strategy strategy, const Routing& routing, const NodeSlots& slots,
                                        std::span<const SourceLayout> sources, Sizes sizes) {
  return ExchangeBuilder(cluster, experts, rank, strategy, routing, slots, sources, sizes).build();
}

}  // namespace epccl::ep
