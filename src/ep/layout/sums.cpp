// Where the rows of a combine come from.
#include <algorithm>

#include "ep/layout/layout.hpp"
#include "ep/layout/sum_builder.hpp"

namespace epccl::ep {
namespace {

using algorithms::TokenExchange;
using algorithms::TokenStream;
using plan::RowTerm;

class Sums {
 public:
  Sums(const LayoutView& layout, TokenExchange& exchange) : layout_(layout), exchange_(exchange) {
    tables_->counts = exchange.tables->counts;
  }

  void add() && {
    for (TokenStream& stream : exchange_.incoming)
      stream.first_sum = add_relay_sums(stream, layout_.incoming(stream.source));
    exchange_.own.first_sum = add_relay_sums(exchange_.own, layout_.own());
    add_final_sums();
    tables_->sum_begin.push_back(static_cast<uint32_t>(tables_->terms.size()));
    exchange_.sums = tables_;
  }

 private:
  // --- what this node gives back for each row of a stream ---

  // The weights of terms are positions in the top-k.
  uint32_t add_relay_sums(const TokenStream& stream, const LayoutView::Relayed& from) {
    number_rows(from);
    SumBuilder sums(*tables_, stream.blocks.places());
    if (layout_.slots.by_expert())
      add_terms_by_expert(sums, from);
    else
      add_terms_by_token(sums, from);
    for (uint32_t row = 0; row < stream.blocks.places(); ++row) sums.end_node(row);
    return sums.first_sum();
  }

  void number_rows(const LayoutView::Relayed& from) {
    const uint32_t tokens = layout_.header(from.source).tokens;
    row_of_.resize(std::max<size_t>(row_of_.size(), tokens));
    if (from.every_token)
      for (uint32_t token = 0; token < tokens; ++token) row_of_[token] = token;
    else
      layout_.for_each_row(from.source, from.tokens,
                           [this](uint32_t token, uint32_t row) { row_of_[token] = row; });
  }

  void add_terms_by_token(SumBuilder& sums, const LayoutView::Relayed& from) {
    for (const RankRows& rows : from.served)
      for (const uint32_t token : rows.tokens) sums.count(row_of_[token], 1);
    sums.begin();
    for (size_t i = 0; i < from.served.size(); ++i) {
      const size_t local = from.first_local + i;
      uint32_t slot = layout_.slots.first_row(from.source, local);
      for (const uint32_t token : from.served[i].tokens)
        sums.add(row_of_[token],
                 {slot++, static_cast<uint16_t>(local), RowTerm::unweighted, RowTerm::rank_sum});
    }
  }

  void add_terms_by_expert(SumBuilder& sums, const LayoutView::Relayed& from) {
    for_each_kept(from, [&](uint32_t row, uint32_t, size_t, Entry) { sums.count(row, 1); });
    sums.begin();
    for_each_kept(from, [&](uint32_t row, uint32_t slot, size_t local, Entry entry) {
      sums.add_of_rank(row, slot, static_cast<uint16_t>(local), static_cast<uint8_t>(entry.k()));
    });
  }

  /// use(row of the stream, slot, local position, entry) for every entry that was not dropped.
  template <typename Use>
  void for_each_kept(const LayoutView::Relayed& from, Use use) const {
    for (size_t i = 0; i < from.served.size(); ++i) {
      const size_t local = from.first_local + i;
      const RankRows& rows = from.served[i];
      const uint32_t first_expert = layout_.experts.first(layout_.members()[local]);
      for_each_entry(layout_.slots, from.source, local, first_expert, rows,
                     [&](uint32_t row, uint32_t slot, Entry entry) {
                       if (slot != NodeSlots::dropped) use(row_of_[rows.tokens[row]], slot, local, entry);
                     });
    }
  }

  // --- what comes back to the source ---

  void add_final_sums() {
    SumBuilder sums(*tables_, exchange_.own.blocks.places());
    for (int node = 0; node < layout_.cluster.nodes(); ++node) count_final(sums, node);
    sums.begin();
    for (int node = 0; node < layout_.cluster.nodes(); ++node) {
      if (node == layout_.node())
        copy_own_terms(sums);
      else if (layout_.strategy == Strategy::flat)
        add_rank_terms(sums, node);
      else
        add_node_terms(sums, node);
    }
    exchange_.first_final_sum = sums.first_sum();
  }

  uint32_t tokens() const { return layout_.header(layout_.rank).tokens; }

  void count_final(SumBuilder& sums, int node) const {
    if (node == layout_.node()) {
      const uint32_t* begin = tables_->sum_begin.data() + exchange_.own.first_sum;
      // The last own sum ends where the terms do so far.
      for (uint32_t token = 0; token < tokens(); ++token)
        sums.count(token, (token + 1 < exchange_.own.blocks.places()
                               ? begin[token + 1]
                               : static_cast<uint32_t>(tables_->terms.size())) -
                              begin[token]);
    } else if (layout_.strategy == Strategy::flat) {
      for (const int member : layout_.cluster.members(node))
        sums.count(layout_.routing.to_rank(member).tokens);
    } else {
      sums.count(layout_.routing.to_node(node));
    }
  }

  void copy_own_terms(SumBuilder& sums) {
    for (uint32_t token = 0; token < tokens(); ++token) {
      const uint32_t* begin = tables_->sum_begin.data() + exchange_.own.first_sum + token;
      for (uint32_t i = begin[0]; i < begin[1]; ++i) sums.add(token, RowTerm(tables_->terms[i]));
    }
  }

  /// Among the sources of a final sum: this rank's stream to `relay`.
  uint16_t source_of(int relay) const {
    const auto stream = std::ranges::find(exchange_.outgoing, relay, &TokenStream::relay);
    return static_cast<uint16_t>(layout_.members().size() +
                                 static_cast<size_t>(stream - exchange_.outgoing.begin()));
  }

  void add_node_terms(SumBuilder& sums, int node) {
    const uint16_t source = source_of(relay_of(layout_.cluster, layout_.rank, node));
    const bool gathers = layout_.strategy == Strategy::gather;
    layout_.for_each_row(layout_.rank, layout_.routing.to_node(node), [&](uint32_t token, uint32_t row) {
      sums.add(token,
               {gathers ? token : row, source, RowTerm::unweighted, RowTerm::rank_sum | RowTerm::node_sum});
    });
  }

  void add_rank_terms(SumBuilder& sums, int node) {
    for (const int member : layout_.cluster.members(node)) {
      const uint16_t source = source_of(member);
      layout_.for_each_row(layout_.rank, layout_.routing.to_rank(member).tokens,
                           [&](uint32_t token, uint32_t row) {
                             sums.add(token, {row, source, RowTerm::unweighted, RowTerm::rank_sum});
                           });
    }
    for (const uint32_t token : layout_.routing.to_node(node)) sums.end_node(token);
  }

  const LayoutView& layout_;
  TokenExchange& exchange_;
  std::shared_ptr<plan::RowTables> tables_ = std::make_shared<plan::RowTables>();
  std::vector<uint32_t> row_of_;  // of a stream, by token
};

}  // namespace

void add_sums(const LayoutView& layout, TokenExchange& exchange) {
  Sums(layout, exchange).add();
}

}  // namespace epccl::ep
