// The lists of plans of several nodes, made by kernels from all ranks' tables, are those that ep makes: for every rank, strategy and
// shape, place by place, and nothing is written beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ep/handle/device_plans.hpp"
#include "ep/layout/token_stream_places.hpp"
#include "launched.hpp"
#include "layout_problem.hpp"
#include "plan/rows.hpp"
#include "shapes.hpp"

namespace epccl::device::kernels::testing {
namespace {

using algorithms::Blocks;
using algorithms::TokenExchange;
using algorithms::TokenStream;
using ep::SlotLayout;
using tests::EpCase;

constexpr uint32_t poison = 0xdeadbeef;

/// What one rank makes of a case in static mode, on the host.
struct OnHost {
  OnHost(const EpCase& what, const ep::ExpertMap& experts, int rank, ep::Strategy strategy)
      : views(exchange_static_layouts(what, experts)),
        layout{what.cluster,
               experts,
               rank,
               strategy,
               views.routings[static_cast<size_t>(rank)],
               views.slots[static_cast<size_t>(rank)],
               views.sources[static_cast<size_t>(rank)],
               ep::Sizes::from_maxima},
        exchange(make_exchange(layout).value()) {
    add_sums(layout, exchange);
  }
  bool fits() const {
    return std::ranges::all_of(views.headers, [&](const auto& header) {
      return header.block_tokens[static_cast<size_t>(layout.strategy)] > 0;
    });
  }

  tests::EpViews views;
  ep::LayoutView layout;
  TokenExchange exchange;
};

/// The same by kernels, where `places` says.
class ByKernels {
 public:
  ByKernels(const EpCase& what, const ep::ExpertMap& experts, int rank, const ep::TokenStreamPlaces& places,
            std::mt19937_64& random)
      : places_(places), layout_(what, experts, rank, random() % 2 == 0) {
    const uint64_t table = uint64_t{layout_.shape().max_tokens} * layout_.shape().k;
    relayed_.resize(places.received.size() * table);
    LayoutParameters& parameters = layout_.parameters;
    parameters.relays = places.relays.data();
    parameters.relayed = relayed_.data();
    parameters.relays_for_itself = places.to_ranks ? 1 : 0;
    const uint64_t given_entries = uint64_t{tests::EpOracle(what).rows(rank)} * what.k;
    given.assign(given_entries, {poison});
    given_counts.assign(given_entries, poison);
    parameters.given = given.data();
    parameters.given_counts = given_counts.data();
    layout_.make(random);
    make_streams(random);
  }

  std::vector<uint32_t> counts, rows, term_counts;
  std::vector<Term> terms, given;
  std::vector<Target> handed;
  std::vector<uint32_t> given_counts;
  const DeviceLayout& layout() const { return layout_; }

 private:
  void make_streams(std::mt19937_64& random) {
    const LayoutShape& shape = layout_.shape();
    counts.assign(places_.counts, poison);
    rows.assign(places_.rows, poison);
    terms.assign(places_.sums * shape.k, {poison});
    term_counts.assign(places_.sums, poison);
    handed.assign((places_.received.size() - 1) * shape.max_tokens * shape.k, {poison, poison});
    std::vector<uint32_t> sent_rows(places_.sent.size() * shape.max_tokens, poison);
    TokenStreamParameters streams;
    streams.layout = layout_.parameters;
    streams.to_ranks = places_.to_ranks ? 1 : 0;
    streams.most_blocks = places_.most_blocks;
    const auto use = [](const auto& list, auto*& pointer, uint32_t& count) {
      pointer = list.data();
      count = static_cast<uint32_t>(list.size());
    };
    use(places_.sent, streams.sent, streams.sent_count);
    use(places_.received, streams.received, streams.received_count);
    use(places_.deliveries, streams.deliveries, streams.delivery_count);
    use(places_.parts, streams.parts, streams.part_count);
    streams.counts = counts.data();
    streams.rows = rows.data();
    streams.sent_rows = sent_rows.data();
    streams.handed = handed.data();
    streams.terms = terms.data();
    streams.term_counts = term_counts.data();
    streams.first_final_sum = places_.first_final_sum;
    streams.own_terms = layout_.terms.data();
    streams.own_counts = layout_.term_counts.data();
    const Grid grid{1 + static_cast<uint32_t>(random() % 3)};
    run(lists_launch(streams, grid), random);
    run(final_sums_launch(streams, grid), random);
  }

  const ep::TokenStreamPlaces& places_;
  DeviceLayout layout_;
  std::vector<Target> relayed_;
};

/// use(place) for each that is taken of a list with these blocks.
template <typename Use>
void for_each_taken(const Blocks& blocks, const plan::RowTables& tables, Use use) {
  for (size_t block = 0; block < blocks.size(); ++block)
    for (uint32_t i = 0; i < blocks.taken(block, tables); ++i) use(blocks.begin[block] + i);
}

// Every list, in one: what has no place in any is still what it was.
void expect_lists(const OnHost& host, const ByKernels& made) {
  const plan::RowTables& tables = *host.exchange.tables;
  EXPECT_EQ(made.counts, tables.counts);
  std::vector<uint32_t> rows(tables.rows.size(), poison);
  const auto take = [&](uint32_t list, const Blocks& blocks) {
    for_each_taken(blocks, tables, [&](uint32_t place) { rows[list + place] = tables.rows[list + place]; });
  };
  const auto take_deliveries = [&](const TokenStream& stream) {
    for (const algorithms::Delivery& delivery : stream.deliveries) {
      take(delivery.rows, delivery.blocks);
      take(delivery.slots, delivery.blocks);
    }
  };
  for (const TokenStream& stream : host.exchange.outgoing)
    if (stream.tokens != TokenStream::every_token) take(stream.tokens, stream.blocks);
  for (const TokenStream& stream : host.exchange.incoming) take_deliveries(stream);
  take_deliveries(host.exchange.own);
  EXPECT_EQ(made.rows, rows);
}

using RowsAndRanks = std::multiset<std::pair<uint32_t, uint32_t>>;

/// Where each row of a stream goes in the node, by its lists.
std::map<uint32_t, RowsAndRanks> handed_on(const OnHost& host, const TokenStream& stream) {
  const plan::RowTables& tables = *host.exchange.tables;
  std::map<uint32_t, RowsAndRanks> places;
  for (const algorithms::Delivery& delivery : stream.deliveries)
    for_each_taken(delivery.blocks, tables, [&](uint32_t place) {
      places[tables.rows[delivery.rows + place]].emplace(
          tables.rows[delivery.slots + place],
          static_cast<uint32_t>(host.layout.cluster.local_of(delivery.rank)));
    });
  return places;
}

// For one kernel that hands out a block what the lists say for a kernel each.
void expect_handed(const OnHost& host, const ByKernels& made) {
  const LayoutShape& shape = made.layout().shape();
  const uint64_t table = uint64_t{shape.max_tokens} * shape.k;
  for (size_t i = 0; i < host.exchange.incoming.size(); ++i) {
    const TokenStream& stream = host.exchange.incoming[i];
    const std::map<uint32_t, RowsAndRanks> expected = handed_on(host, stream);
    std::vector<bool> taken(shape.max_tokens, false);
    for_each_taken(stream.blocks, *host.exchange.tables, [&](uint32_t row) {
      taken[row] = true;
      RowsAndRanks found;
      for (uint32_t k = 0; k < shape.k; ++k)
        if (const Target& target = made.handed[i * table + uint64_t{row} * shape.k + k]; target.row != no_row)
          found.emplace(target.row, target.peer);
      const auto goes = expected.find(row);
      ASSERT_EQ(found, goes == expected.end() ? RowsAndRanks() : goes->second)
          << "stream " << i << ", row " << row;
    });
    for (uint64_t at = 0; at < table; ++at) {
      if (taken[at / shape.k]) continue;
      ASSERT_EQ(made.handed[i * table + at].row, poison) << "stream " << i << ", place " << at;
    }
  }
}

void expect_sums(const OnHost& host, const ByKernels& made) {
  const plan::RowTables& sums = *host.exchange.sums;
  const uint32_t k = made.layout().shape().k;
  std::vector<uint32_t> counts(made.term_counts.size(), poison);
  const auto expect = [&](uint32_t sum) {
    const auto expected = plan::terms_of(sums, sum, 1);
    counts[sum] = static_cast<uint32_t>(expected.size());
    ASSERT_EQ(made.term_counts[sum], expected.size()) << "sum " << sum;
    for (size_t i = 0; i < expected.size(); ++i) {
      const Term& term = made.terms[size_t{sum} * k + i];
      ASSERT_EQ((plan::RowTerm{term.row, term.source, term.weight, term.ends}), expected[i])
          << "sum " << sum << ", term " << i;
    }
  };
  for (const TokenStream& stream : host.exchange.incoming)
    for_each_taken(stream.blocks, sums, [&](uint32_t row) { expect(stream.first_sum + row); });
  for_each_taken(host.exchange.own.blocks, sums,
                 [&](uint32_t token) { expect(host.exchange.first_final_sum + token); });
  EXPECT_EQ(made.term_counts, counts) << "of other sums";
}

/// Which of the weights that a caller gives back each of a row's k is.
void expect_given(const OnHost& host, const ByKernels& made, int rank) {
  const ep::LayoutView& layout = host.layout;
  const auto local = static_cast<size_t>(layout.cluster.local_of(rank));
  const uint32_t k = made.layout().shape().k;
  std::vector<uint32_t> counts(made.given_counts.size(), 0), rows(counts.size(), poison);
  for (int source = 0; source < layout.cluster.ranks(); ++source)
    for_each_entry(layout.slots, source, local, layout.experts.first(rank),
                   layout.sources[static_cast<size_t>(source)].rows_of(local),
                   [&](uint32_t, uint32_t slot, ep::Entry entry) {
                     if (slot == ep::NodeSlots::dropped) return;
                     const size_t at = size_t{slot} * k + entry.k();
                     counts[at] = 1;
                     rows[at] = layout.slots.by_expert() ? slot : static_cast<uint32_t>(at);
                   });
  EXPECT_EQ(made.given_counts, counts);
  for (size_t at = 0; at < rows.size(); ++at) {
    ASSERT_EQ(made.given[at].row, rows[at]) << "weight " << at;
    if (counts[at] == 0) continue;
    ASSERT_EQ(made.given[at].source, 0);
    ASSERT_EQ(made.given[at].weight, Term::unweighted);
    ASSERT_EQ(made.given[at].ends, Term::rank_sum | Term::node_sum);
  }
}

/// Blocks of more than one warp's tokens, now and then.
EpCase larger(EpCase what, std::mt19937_64& random) {
  if (random() % 2 == 0) return what;
  what.rules.max_tokens += 20 + static_cast<uint32_t>(random() % 150);
  what.chunk_bytes = tests::ep_row * (1 + random() % 100);
  what.scratch_bytes = 8 << 20;
  return tests::other_routing(what, random);
}

using What = std::tuple<SlotLayout, ep::Strategy>;
class StreamKernels : public ::testing::TestWithParam<What> {};

// Where lists lie another routing of the same maxima has said.
TEST_P(StreamKernels, MakeTheListsThatEpMakes) {
  const auto [rows_as, strategy] = GetParam();
  std::mt19937_64 random = tests::seeded_generator("stream kernels");
  int proved = 0;
  for (const topology::Cluster& cluster : tests::small_shapes())
    for (int repetition = 0; repetition < 4; ++repetition) {
      const EpCase what = larger(tests::random_case(cluster, rows_as, random), random);
      SCOPED_TRACE(what.text());
      const ep::ExpertMap experts = tests::experts_of(what);
      const int rank = static_cast<int>(random() % static_cast<uint64_t>(cluster.ranks()));
      const EpCase other = tests::other_routing(what, random);
      const OnHost before(other, experts, rank, strategy);
      if (!before.fits()) continue;
      const ep::TokenStreamPlaces places = places_of_streams(before.layout, before.exchange);
      const OnHost host(what, experts, rank, strategy);
      const ByKernels made(what, experts, rank, places, random);
      expect_lists(host, made);
      ASSERT_NO_FATAL_FAILURE(expect_handed(host, made));
      ASSERT_NO_FATAL_FAILURE(expect_sums(host, made));
      ASSERT_NO_FATAL_FAILURE(expect_given(host, made, rank));
      ASSERT_FALSE(HasFailure());
      ++proved;
    }
  EXPECT_GT(proved, 10);
}

INSTANTIATE_TEST_SUITE_P(CudaKernels, StreamKernels,
                         ::testing::Combine(::testing::Values(SlotLayout::rank_major,
                                                              SlotLayout::expert_major),
                                            ::testing::ValuesIn(ep::strategies)),
                         [](const auto& param_info) {
                           return std::string(to_string(std::get<0>(param_info.param))) + "_" +
                                  to_string(std::get<1>(param_info.param));
                         });

// Memory for them is borrowed before anybody knows the strategy.
TEST(TokenStreamPlaces, AreNoMoreThanWasBorrowedFor) {
  std::mt19937_64 random = tests::seeded_generator("stream places");
  for (const topology::Cluster& cluster : tests::small_shapes())
    for (const ep::Strategy strategy : ep::strategies) {
      const EpCase what = tests::random_case(cluster, SlotLayout::expert_major, random);
      SCOPED_TRACE(what.text());
      const ep::ExpertMap experts = tests::experts_of(what);
      for (int rank = 0; rank < cluster.ranks(); ++rank) {
        const OnHost host(what, experts, rank, strategy);
        const ep::TokenStreamPlaces places = places_of_streams(host.layout, host.exchange);
        for (const std::optional<ep::Strategy> forced :
             {std::optional(strategy), std::optional<ep::Strategy>()}) {
          const ep::StreamLimits most = ep::most_streams(cluster, rank, forced);
          EXPECT_LE(places.sent.size(), most.sent);
          EXPECT_LE(places.received.size(), most.received);
          EXPECT_LE(places.deliveries.size(), most.deliveries);
          EXPECT_LE(places.parts.size(), most.sent + 1);
          EXPECT_LE(places.counts, (most.sent + most.received + most.deliveries) * what.rules.max_tokens);
          EXPECT_LE(places.rows, ep::most_table_bytes(cluster, rank, what.rules, what.rules.max_tokens,
                                                      what.rules.max_topk, forced)
                                         .lists /
                                     sizeof(uint32_t));
          EXPECT_LE(places.sums, (most.received + 1) * what.rules.max_tokens);
        }
      }
    }
}

}  // namespace
}  // namespace epccl::device::kernels::testing
