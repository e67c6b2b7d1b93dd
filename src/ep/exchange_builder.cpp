#include <algorithm>

#include "ep/block_cutter.hpp"
#include "ep/layout.hpp"
#include "ep/sum_builder.hpp"

namespace epccl::ep {
namespace {

using algorithms::Delivery;
using algorithms::TokenExchange;
using algorithms::TokenStream;
using plan::RowTerm;

class ExchangeBuilder {
 public:
  ExchangeBuilder(const topology::Cluster& cluster, const ExpertMap& experts, int rank, Strategy strategy,
                  const Routing& routing, const NodeSlots& slots, std::span<const SourceLayout> sources)
      : cluster_(cluster),
        experts_(experts),
        rank_(rank),
        node_(cluster.node_of(rank)),
        strategy_(strategy),
        routing_(routing),
        slots_(slots),
        sources_(sources),
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
    return {header(source).tokens, header(source).block_tokens[static_cast<size_t>(strategy_)]};
  }

  uint32_t add_list(std::span<const uint32_t> list) {
    const auto at = static_cast<uint32_t>(tables_->rows.size());
    tables_->rows.insert(tables_->rows.end(), list.begin(), list.end());
    return at;
  }

  // --- as source ---

  void add_sent(int relay, std::span<const uint32_t> tokens) {
    TokenStream stream;
    stream.source = rank_;
    stream.relay = relay;
    if (strategy_ == Strategy::gather) {
      stream.block_begin = cutter(rank_).cut_all();
    } else {
      stream.block_begin = cutter(rank_).cut(tokens);
      stream.tokens = add_list(tokens);
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
    stream.block_begin = every_token ? cut.cut_all() : cut.cut(stream_tokens);
    row_of_.resize(std::max<size_t>(row_of_.size(), header(source).tokens));
    for (uint32_t row = 0; row < stream_tokens.size(); ++row) row_of_[stream_tokens[row]] = row;
    positions_.clear();
    for (size_t i = 0; i < served.size(); ++i) {
      if (served[i].tokens.empty()) continue;
      const size_t local = first_local + i;
      stream.deliveries.push_back(slots_.by_expert() ? delivery_by_expert(source, local, served[i], every_token, cut)
                                                     : delivery_by_token(source, local, served[i], every_token, cut));
    }
    stream.first_sum = add_relay_sums(stream);
    return stream;
  }

  uint32_t row_of(uint32_t token, bool every_token) const { return every_token ? token : row_of_[token]; }

  Delivery delivery_by_token(int source, size_t local, const RankRows& rows, bool every_token, const BlockCutter& cut) {
    Delivery delivery{members_[local], static_cast<uint32_t>(tables_->rows.size()), plan::Step::no_list, slots_.first_row(source, local),
                      cut.cut(rows.tokens)};
    tables_->rows.resize(tables_->rows.size() + rows.tokens.size());
    uint32_t* out = tables_->rows.data() + delivery.rows;
    for (const uint32_t token : rows.tokens) *out++ = row_of(token, every_token);
    return delivery;
  }

  Delivery delivery_by_expert(int source, size_t local, const RankRows& rows, bool every_token, const BlockCutter& cut) {
    Delivery delivery;
    delivery.rank = members_[local];
    listed_.clear();
    slots_listed_.clear();
    for_each_entry(slots_, source, local, experts_.first(delivery.rank), rows, [&](uint32_t row, uint32_t slot, Entry entry) {
      if (slot == NodeSlots::dropped) return;
      const uint32_t token = rows.tokens[row];
      cut.before(token, static_cast<uint32_t>(listed_.size()), delivery.block_begin);
      listed_.push_back(row_of(token, every_token));
      slots_listed_.push_back(slot);
      positions_.push_back(static_cast<uint8_t>(entry.k()));
    });
    cut.finish(static_cast<uint32_t>(listed_.size()), delivery.block_begin);
    delivery.rows = add_list(listed_);
    delivery.slots = add_list(slots_listed_);
    return delivery;
  }

  // What this node gives back for each row of a stream. The weights of terms are positions in the top-k.
  uint32_t add_relay_sums(const TokenStream& stream) {
    const uint32_t rows = stream.block_begin.back();
    SumBuilder sums(*tables_, rows);
    for (const Delivery& delivery : stream.deliveries) sums.count(std::span(tables_->rows).subspan(delivery.rows, delivery.block_begin.back()));
    sums.begin();
    size_t next_position = 0;
    for (const Delivery& delivery : stream.deliveries) {
      const auto local = static_cast<uint16_t>(cluster_.local_of(delivery.rank));
      const uint32_t* listed = tables_->rows.data() + delivery.rows;
      for (uint32_t i = 0; i < delivery.block_begin.back(); ++i) {
        if (slots_.by_expert())
          sums.add_of_rank(listed[i], tables_->rows[delivery.slots + i], local, positions_[next_position++]);
        else
          sums.add(listed[i], {delivery.first_slot + i, local, RowTerm::unweighted, RowTerm::rank_sum});
      }
    }
    for (uint32_t row = 0; row < rows; ++row) sums.end_node(row);
    return sums.first_sum();
  }

  // --- what comes back to the source ---

  void add_final_sums() {
    const uint32_t tokens = header(rank_).tokens;
    SumBuilder sums(*tables_, tokens);
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
        sums.count(token, (token + 1 < tokens ? begin[token + 1] : static_cast<uint32_t>(tables_->terms.size())) - begin[token]);
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
    const auto tokens = routing_.to_node(node);
    for (uint32_t row = 0; row < tokens.size(); ++row)
      sums.add(tokens[row], {strategy_ == Strategy::gather ? tokens[row] : row, source, RowTerm::unweighted,
                             RowTerm::rank_sum | RowTerm::node_sum});
  }

  void add_rank_terms(SumBuilder& sums, int node) {
    for (const int member : cluster_.members(node)) {
      const auto source = static_cast<uint16_t>(members_.size() + stream_of_[static_cast<size_t>(member)]);
      const auto tokens = routing_.to_rank(member).tokens;
      for (uint32_t row = 0; row < tokens.size(); ++row)
        sums.add(tokens[row], {row, source, RowTerm::unweighted, RowTerm::rank_sum});
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
                                        std::span<const SourceLayout> sources) {
  return ExchangeBuilder(cluster, experts, rank, strategy, routing, slots, sources).build();
}

}  // namespace epccl::ep
