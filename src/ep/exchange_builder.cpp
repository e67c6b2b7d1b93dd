#include <algorithm>

#include "ep/layout.hpp"

namespace epccl::ep {
namespace {

using algorithms::Delivery;
using algorithms::TokenExchange;
using algorithms::TokenStream;
using plan::RowTerm;

/// Counts rows into blocks of tokens, in ascending order of token.
class BlockCutter {
 public:
  BlockCutter(uint32_t tokens, uint32_t block_tokens)
      : block_tokens_(std::max(block_tokens, 1U)), blocks_((tokens + block_tokens_ - 1) / block_tokens_) {}

  size_t blocks() const { return blocks_; }
  /// Before the row (or list entry) `index` of `token` is added.
  void before(uint32_t token, uint32_t index, std::vector<uint32_t>& begin) const {
    while (begin.size() <= token / block_tokens_) begin.push_back(index);
  }
  void finish(uint32_t count, std::vector<uint32_t>& begin) const { begin.resize(blocks_ + 1, count); }
  /// Where every token is a row.
  std::vector<uint32_t> all(uint32_t tokens) const {
    std::vector<uint32_t> begin;
    for (size_t block = 0; block < blocks_; ++block) begin.push_back(static_cast<uint32_t>(block) * block_tokens_);
    begin.push_back(tokens);
    return begin;
  }

 private:
  uint32_t block_tokens_;
  size_t blocks_;
};

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
        pending_(members_.size()) {}

  TokenExchange build() && {
    add_outgoing();
    add_incoming();
    exchange_.own = relayed(rank_, rank_, routing_.to_node(node_), true);
    add_final_sums();
    tables_->sum_begin.push_back(static_cast<uint32_t>(tables_->terms.size()));
    exchange_.tables = tables_;
    return std::move(exchange_);
  }

 private:
  uint32_t tokens() const { return header(rank_).tokens; }
  const SourceHeader& header(int source) const { return sources_[static_cast<size_t>(source)].header; }
  BlockCutter cutter(int source) const {
    return {header(source).tokens, header(source).block_tokens[static_cast<size_t>(strategy_)]};
  }

  uint32_t add_list(const std::vector<uint32_t>& list) {
    const auto at = static_cast<uint32_t>(tables_->rows.size());
    tables_->rows.insert(tables_->rows.end(), list.begin(), list.end());
    return at;
  }

  // --- as source ---

  TokenStream sent(int relay, const Rows& rows) {
    const BlockCutter cut = cutter(rank_);
    TokenStream stream;
    stream.source = rank_;
    stream.relay = relay;
    if (strategy_ == Strategy::gather) {
      stream.block_begin = cut.all(tokens());
      return stream;
    }
    std::vector<uint32_t> list;
    list.reserve(rows.count());
    rows.for_each([&](uint32_t token, std::span<const uint32_t>) {
      cut.before(token, static_cast<uint32_t>(list.size()), stream.block_begin);
      list.push_back(token);
    });
    cut.finish(static_cast<uint32_t>(list.size()), stream.block_begin);
    stream.tokens = add_list(list);
    return stream;
  }

  void add_outgoing() {
    stream_of_node_.resize(static_cast<size_t>(cluster_.nodes()));
    stream_of_rank_.resize(static_cast<size_t>(cluster_.ranks()));
    for (int distance = 1; distance < cluster_.nodes(); ++distance) {
      const int node = (node_ + distance) % cluster_.nodes();
      if (strategy_ != Strategy::flat) {
        stream_of_node_[static_cast<size_t>(node)] = exchange_.outgoing.size();
        exchange_.outgoing.push_back(sent(relay_of(cluster_, rank_, node), routing_.to_node(node)));
        continue;
      }
      const auto split = split_by_rank(routing_.to_node(node), cluster_, experts_, node);
      for (size_t i = 0; i < split.size(); ++i) {
        const size_t local = (static_cast<size_t>(cluster_.local_of(rank_)) + i) % split.size();
        const int receiver = cluster_.rank_at(node, static_cast<int>(local));
        stream_of_rank_[static_cast<size_t>(receiver)] = exchange_.outgoing.size();
        exchange_.outgoing.push_back(sent(receiver, split[local]));
      }
    }
  }

  // --- as relay ---

  void add_incoming() {
    for (int distance = 1; distance < cluster_.nodes(); ++distance) {
      const int node = (node_ + cluster_.nodes() - distance) % cluster_.nodes();
      for (const int source : cluster_.members(node)) {
        const bool relays = relay_of(cluster_, source, node_) == rank_;
        const Rows& rows = sources_[static_cast<size_t>(source)].rows;
        if (strategy_ != Strategy::flat) {
          if (relays) exchange_.incoming.push_back(relayed(source, rank_, rows, strategy_ == Strategy::gather));
          continue;
        }
        if (!relays) {
          exchange_.incoming.push_back(relayed(source, rank_, rows, false));
        } else {
          auto split = split_by_rank(rows, cluster_, experts_, node_);
          exchange_.incoming.push_back(relayed(source, rank_, split[static_cast<size_t>(cluster_.local_of(rank_))], false));
        }
      }
    }
  }

  // `rows_are_tokens`: the stream has a row for every token, not only for those in `rows`.
  TokenStream relayed(int source, int relay, const Rows& rows, bool rows_are_tokens) {
    const BlockCutter cut = cutter(source);
    TokenStream stream;
    stream.source = source;
    stream.relay = relay;
    stream.first_sum = static_cast<uint32_t>(tables_->sum_begin.size());
    if (rows_are_tokens) stream.block_begin = cut.all(header(source).tokens);
    for (Pending& pending : pending_) pending = {};
    NodeSlots::Walk walk(slots_, source);
    uint32_t row = 0;
    rows.for_each([&](uint32_t token, std::span<const uint32_t> entries) {
      if (rows_are_tokens) {
        for (; row < token; ++row) begin_sum();
      } else {
        cut.before(token, row, stream.block_begin);
      }
      begin_sum();
      add_row(walk, cut, token, row++, entries);
    });
    if (rows_are_tokens)
      for (; row < header(source).tokens; ++row) begin_sum();
    else
      cut.finish(row, stream.block_begin);
    for (size_t local = 0; local < members_.size(); ++local) {
      Pending& pending = pending_[local];
      cut.finish(static_cast<uint32_t>(pending.rows.size()), pending.block_begin);
      if (pending.rows.empty()) continue;
      stream.deliveries.push_back({members_[local], add_list(pending.rows), add_list(pending.slots), std::move(pending.block_begin)});
    }
    return stream;
  }

  void begin_sum() { tables_->sum_begin.push_back(static_cast<uint32_t>(tables_->terms.size())); }

  void add_row(NodeSlots::Walk& walk, const BlockCutter& cut, uint32_t token, uint32_t row, std::span<const uint32_t> entries) {
    auto& terms = tables_->terms;
    const size_t first = terms.size();
    walk.row(entries, [&](size_t local, uint32_t slot, Entry entry) {
      if (slot == NodeSlots::dropped) return;
      const bool same = terms.size() > first && terms.back().source == local && terms.back().row == slot;
      if (same) return;  // several experts of one rank share the row
      if (terms.size() > first && terms.back().source != local) terms.back().ends = RowTerm::rank_sum;
      terms.push_back({slot, static_cast<uint16_t>(local), static_cast<uint8_t>(slots_.by_expert() ? entry.k() : RowTerm::unweighted), RowTerm::nothing});
      Pending& pending = pending_[local];
      cut.before(token, static_cast<uint32_t>(pending.rows.size()), pending.block_begin);
      pending.rows.push_back(row);
      pending.slots.push_back(slot);
    });
    if (terms.size() > first) terms.back().ends = RowTerm::rank_sum | RowTerm::node_sum;
  }

  // --- what comes back to the source ---

  // One node's rows, walked along with the tokens.
  struct Cursor {
    std::span<const uint32_t> words;
    size_t at = 0;
    uint32_t row = 0;
    bool is_at(uint32_t token) const { return at < words.size() && words[at] >> 6 == token; }
    std::span<const uint32_t> take() {
      const uint32_t entries = (words[at] & 63) + 1;
      const auto taken = words.subspan(at + 1, entries);
      at += 1 + entries;
      ++row;
      return taken;
    }
  };

  void add_final_sums() {
    exchange_.first_final_sum = static_cast<uint32_t>(tables_->sum_begin.size());
    std::vector<Cursor> cursors;
    for (int node = 0; node < cluster_.nodes(); ++node) cursors.push_back({routing_.to_node(node).words()});
    std::vector<uint32_t> next_row(static_cast<size_t>(cluster_.ranks()));
    for (uint32_t token = 0; token < tokens(); ++token) {
      begin_sum();
      for (int node = 0; node < cluster_.nodes(); ++node) {
        Cursor& cursor = cursors[static_cast<size_t>(node)];
        if (!cursor.is_at(token)) continue;
        const uint32_t row = strategy_ == Strategy::gather ? token : cursor.row;
        const auto entries = cursor.take();
        if (node == node_)
          copy_own_terms(token);
        else if (strategy_ == Strategy::flat)
          add_rank_terms(node, entries, next_row);
        else
          add_term(stream_of_node_[static_cast<size_t>(node)], row, RowTerm::rank_sum | RowTerm::node_sum);
      }
    }
  }

  void copy_own_terms(uint32_t token) {
    auto& terms = tables_->terms;
    const size_t sum = exchange_.own.first_sum + token;
    for (uint32_t i = tables_->sum_begin[sum]; i < tables_->sum_begin[sum + 1]; ++i) terms.push_back(RowTerm(terms[i]));
  }

  void add_rank_terms(int node, std::span<const uint32_t> entries, std::vector<uint32_t>& next_row) {
    const auto& owner = experts_.owner_local(node);
    size_t last = SIZE_MAX;
    for (const uint32_t word : entries) {
      const size_t local = owner[Entry{word}.node_index()];
      if (local == last) continue;
      last = local;
      const auto receiver = static_cast<size_t>(cluster_.rank_at(node, static_cast<int>(local)));
      add_term(stream_of_rank_[receiver], next_row[receiver]++, RowTerm::rank_sum);
    }
    tables_->terms.back().ends = RowTerm::rank_sum | RowTerm::node_sum;
  }

  void add_term(size_t stream, uint32_t row, int ends) {
    tables_->terms.push_back(
        {row, static_cast<uint16_t>(members_.size() + stream), RowTerm::unweighted, static_cast<uint8_t>(ends)});
  }

  /// A delivery in the making.
  struct Pending {
    std::vector<uint32_t> rows, slots, block_begin;
  };

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
  std::vector<size_t> stream_of_node_, stream_of_rank_;
  std::vector<Pending> pending_;
};

}  // namespace

algorithms::TokenExchange make_exchange(const topology::Cluster& cluster, const ExpertMap& experts, int rank,
                                        Strategy strategy, const Routing& routing, const NodeSlots& slots,
                                        std::span<const SourceLayout> sources) {
  return ExchangeBuilder(cluster, experts, rank, strategy, routing, slots, sources).build();
}

}  // namespace epccl::ep
