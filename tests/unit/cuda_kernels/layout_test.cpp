// Layouts made by kernels, run on the host, are the layouts that ep makes: for every rank, on clusters of all shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "launched.hpp"
#include "layout_problem.hpp"
#include "plan/rows.hpp"
#include "shapes.hpp"

namespace epccl::device::kernels::testing {
namespace {

using ep::SlotLayout;
using tests::EpCase;
using tests::EpOracle;

/// A case and what the library makes of it.
struct Known {
  explicit Known(EpCase given)
      : what(std::move(given)),
        experts(tests::experts_of(what)),
        views(exchange_layouts(what, experts)),
        oracle(what) {}
  EpCase what;
  ep::ExpertMap experts;
  tests::EpViews views;
  EpOracle oracle;

  uint32_t owner_rank(int64_t id) const { return static_cast<uint32_t>(oracle.owner(id)); }
  const ep::Routing& routing(int rank) const { return views.routings[static_cast<size_t>(rank)]; }
  int64_t id(int source, uint32_t token, uint32_t position) const {
    return what.topk[static_cast<size_t>(source)][size_t{token} * what.k + position];
  }
};

void expect_totals(const Known& known, const DeviceLayout& made) {
  const LayoutShape& shape = made.shape();
  for (int source = 0; source < known.what.cluster.ranks(); ++source) {
    EXPECT_EQ(made.wrong[static_cast<size_t>(source)], no_row);
    const ep::Routing& routing = known.routing(source);
    uint32_t index = 0;
    for (int node = 0; node < known.what.cluster.nodes(); ++node) {
      for (const uint32_t entries : routing.expert_entries(node))
        EXPECT_EQ(made.total(source, shape.expert_key(index++)), entries);
      EXPECT_EQ(made.total(source, shape.node_tokens_key(static_cast<uint32_t>(node))),
                routing.to_node(node).size());
    }
    for (int rank = 0; rank < known.what.cluster.ranks(); ++rank) {
      const auto r = static_cast<uint32_t>(rank);
      EXPECT_EQ(made.total(source, shape.rank_tokens_key(r)), routing.to_rank(rank).tokens.size());
      EXPECT_EQ(made.total(source, shape.rank_entries_key(r)), routing.to_rank(rank).entries.size());
    }
  }
}

void expect_lists(const Known& known, const DeviceLayout& made, int rank) {
  const LayoutShape& shape = made.shape();
  const auto begins_with = [](const std::vector<uint32_t>& list, uint64_t at,
                              std::span<const uint32_t> expected) {
    return std::ranges::equal(std::span(list).subspan(at, expected.size()), expected);
  };
  for (int to = 0; to < known.what.cluster.ranks(); ++to) {
    const ep::RankRows rows = known.routing(rank).to_rank(to);
    const auto r = static_cast<uint64_t>(to);
    EXPECT_TRUE(begins_with(made.rank_tokens, r * shape.max_tokens, rows.tokens)) << "tokens for rank " << to;
    EXPECT_TRUE(begins_with(made.rank_entries, r * shape.max_tokens * shape.k, rows.entries))
        << "entries for rank " << to;
  }
  for (int node = 0; node < known.what.cluster.nodes(); ++node)
    EXPECT_TRUE(begins_with(made.node_tokens, static_cast<uint64_t>(node) * shape.max_tokens,
                            known.routing(rank).to_node(node)))
        << "tokens for node " << node;
}

/// Of all nodes, as each of their ranks has them.
void expect_places(const Known& known, const DeviceLayout& made) {
  const LayoutShape& shape = made.shape();
  uint32_t first_of_node = 0;
  for (int node = 0; node < known.what.cluster.nodes(); ++node) {
    const auto& members = known.what.cluster.members(node);
    const ep::NodeSlots& slots = known.views.slots[static_cast<size_t>(members[0])];
    for (uint32_t index = 0; index < known.experts.node_size(node); ++index) {
      const uint32_t expert = first_of_node + index;
      EXPECT_EQ(made.entries[expert], slots.entries(index));
      EXPECT_EQ(made.zone_begin[expert], slots.zone_begin(index));
      EXPECT_EQ(made.zone_rows[expert], slots.zone_rows(index));
      for (uint32_t source = 0; source < shape.sources; ++source)
        EXPECT_EQ(made.before[uint64_t{source} * shape.experts + expert],
                  slots.entries_before(static_cast<int>(source), index));
    }
    first_of_node += known.experts.node_size(node);
    for (size_t local = 0; local < members.size(); ++local) {
      const auto rank = static_cast<size_t>(members[local]);
      EXPECT_EQ(made.rows[rank], slots.slots(local));
      EXPECT_EQ(made.rows[rank], known.oracle.rows(members[local]));
      for (uint32_t source = 0; source < shape.sources; ++source)
        EXPECT_EQ(made.first_row[uint64_t{source} * shape.ranks + rank],
                  slots.first_row(static_cast<int>(source), local));
    }
  }
}

void expect_targets(const Known& known, const DeviceLayout& made, int rank) {
  const topology::Cluster& cluster = known.what.cluster;
  const bool by_expert = known.what.rules.layout == SlotLayout::expert_major;
  for (uint32_t token = 0; token < known.what.tokens(rank); ++token) {
    std::vector<int> seen;
    for (uint32_t position = 0; position < known.what.k; ++position) {
      const int64_t id = known.id(rank, token, position);
      const uint32_t slot = known.oracle.slot(rank, token, position);
      Target expected;
      if (id >= 0 && slot != EpOracle::dropped) {
        const int owner = known.oracle.owner(id);
        const bool first = std::ranges::find(seen, owner) == seen.end();
        seen.push_back(owner);
        if (cluster.node_of(owner) == cluster.node_of(rank) && (by_expert || first))
          expected = {slot, static_cast<uint32_t>(cluster.local_of(owner))};
      }
      const size_t at = size_t{token} * known.what.k + position;
      ASSERT_EQ(made.targets[at].row, expected.row) << "token " << token << ", position " << position;
      ASSERT_EQ(made.targets[at].peer, expected.peer);
      ASSERT_EQ(made.dropped[at], id >= 0 && slot == EpOracle::dropped ? 1 : 0);
    }
  }
}

void expect_received(const Known& known, const DeviceLayout& made, int rank) {
  const bool by_expert = known.what.rules.layout == SlotLayout::expert_major;
  const auto& own = known.what.cluster;
  std::vector<uint32_t> entries(made.row_entries.size(), no_row);
  std::vector<int32_t> topk(made.row_topk.size(), -1);
  const size_t local = static_cast<size_t>(own.local_of(rank));
  for (int source = 0; source < own.ranks(); ++source)
    for_each_entry(known.views.slots[static_cast<size_t>(rank)], source, local, known.experts.first(rank),
                   known.views.sources[static_cast<size_t>(rank)][static_cast<size_t>(source)].rows_of(local),
                   [&](uint32_t, uint32_t slot, ep::Entry entry) {
                     if (slot == ep::NodeSlots::dropped) return;
                     if (by_expert) entries[slot] = entry.word;
                     topk[size_t{slot} * known.what.k + entry.k()] = static_cast<int32_t>(entry.expert());
                   });
  EXPECT_EQ(made.row_entries, entries);
  EXPECT_EQ(made.row_topk, topk);
}

/// Where each entry's weight is, and the rows that are sums of themselves.
void expect_homes(const Known& known, const DeviceLayout& made, int rank) {
  const topology::Cluster& cluster = known.what.cluster;
  const bool by_expert = known.what.rules.layout == SlotLayout::expert_major;
  constexpr uint8_t alone = Term::rank_sum | Term::node_sum;
  for (uint32_t token = 0; token < known.what.tokens(rank); ++token)
    for (uint32_t position = 0; position < known.what.k; ++position) {
      const int64_t id = known.id(rank, token, position);
      const uint32_t slot = known.oracle.slot(rank, token, position);
      const size_t at = size_t{token} * known.what.k + position;
      const int owner = id >= 0 ? known.oracle.owner(id) : -1;
      const bool there =
          id >= 0 && slot != EpOracle::dropped && cluster.node_of(owner) == cluster.node_of(rank);
      ASSERT_EQ(made.home_counts[at], there ? 1U : 0U) << "token " << token << ", position " << position;
      if (!there) continue;
      const Term& home = made.homes[at];
      ASSERT_EQ(home.row, by_expert ? slot : slot * known.what.k + position);
      ASSERT_EQ(home.source, cluster.local_of(owner));
      ASSERT_EQ(home.weight, Term::unweighted);
      ASSERT_EQ(home.ends, alone);
    }
  // A combine in a graph walks over as many tokens as it was captured with.
  for (size_t at = size_t{known.what.tokens(rank)} * known.what.k; at < made.home_counts.size(); ++at)
    ASSERT_EQ(made.home_counts[at], 0U) << "entry " << at << ", which the table does not have";
  if (!by_expert) return;
  for (uint32_t row = 0; row < made.row_entries.size(); ++row) {
    const uint32_t entry = made.row_entries[row];
    ASSERT_EQ(made.row_counts[row], entry != no_row ? 1U : 0U) << "row " << row;
    if (entry == no_row) continue;
    ASSERT_EQ(made.row_terms[row].row, row);
    ASSERT_EQ(made.row_terms[row].source, 0);
    ASSERT_EQ(made.row_terms[row].weight, ep::Entry{entry}.k());
    ASSERT_EQ(made.row_terms[row].ends, alone);
  }
}

/// As callers ask for them.
void expect_counters(const Known& known, const DeviceLayout& made, int rank, std::mt19937_64& random) {
  const ep::NodeSlots& slots = known.views.slots[static_cast<size_t>(rank)];
  const uint32_t first = known.experts.first(rank), count = known.experts.count(rank),
                 capacity = known.what.rules.capacity;
  const auto local = static_cast<size_t>(known.what.cluster.local_of(rank));
  const auto sources = static_cast<size_t>(known.what.cluster.ranks());
  std::vector<int32_t> kept(count, -9), offsets(count, -9), total(1, -9);
  std::vector<int64_t> lost(count, -9), tokens(sources, -9);
  CountersParameters parameters;
  parameters.expert_counters = {kept.data(), 0};
  parameters.expert_offsets = {offsets.data(), 0};
  parameters.dropped_counters = {lost.data(), 1};
  parameters.source_counters = {tokens.data(), 1};
  parameters.total = {total.data(), 0};
  parameters.shape = made.shape();
  parameters.rank = static_cast<uint32_t>(rank);
  parameters.first_expert = made.parameters.ranks[rank].first;
  parameters.expert_count = count;
  parameters.capacity = capacity;
  parameters.totals = made.totals.data();
  parameters.entries = made.entries.data();
  parameters.zone_begin = made.zone_begin.data();
  parameters.rows = made.rows.data();
  run(counters_launch(parameters, {2}), random);
  EXPECT_EQ(total[0], static_cast<int32_t>(slots.slots(local)));
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t entries = slots.entries(first + i),
                   expected = capacity > 0 ? std::min(entries, capacity) : entries;
    EXPECT_EQ(kept[i], static_cast<int32_t>(expected)) << "expert " << i;
    EXPECT_EQ(lost[i], entries - expected);
    EXPECT_EQ(offsets[i], static_cast<int32_t>(slots.zone_begin(first + i)));
  }
  for (size_t source = 0; source < sources; ++source)
    EXPECT_EQ(tokens[source], known.routing(static_cast<int>(source)).to_rank(rank).tokens.size());
}

void expect_topk(const Known& known, const DeviceLayout& made, std::mt19937_64& random) {
  const bool by_expert = known.what.rules.layout == SlotLayout::expert_major, wide = random() % 2 == 0;
  const auto rows = static_cast<uint32_t>(made.row_entries.size());
  std::vector<int32_t> narrow(made.row_topk.size(), -9);
  std::vector<int64_t> full(made.row_topk.size(), -9);
  TopkParameters parameters;
  parameters.rows.most = rows;
  parameters.k = known.what.k;
  if (by_expert)
    parameters.row_entries = made.row_entries.data();
  else
    parameters.row_topk = made.row_topk.data();
  parameters.wide = wide ? 1 : 0;
  parameters.topk = wide ? static_cast<void*>(full.data()) : narrow.data();
  run(topk_launch(parameters, {2}), random);
  if (wide) narrow.assign(full.begin(), full.end());
  EXPECT_EQ(narrow, made.row_topk);
}

/// Of the node's own sums.
void expect_terms(const Known& known, const DeviceLayout& made, int rank) {
  const auto r = static_cast<size_t>(rank);
  const ep::LayoutView layout{known.what.cluster,    known.experts,           rank,
                              ep::Strategy::dedup,   known.views.routings[r], known.views.slots[r],
                              known.views.sources[r]};
  auto exchange = make_exchange(layout).value();
  add_sums(layout, exchange);
  const plan::RowTables& sums = *exchange.sums;
  for (uint32_t token = 0; token < known.what.tokens(rank); ++token) {
    const auto expected = plan::terms_of(sums, exchange.own.first_sum + token, 1);
    ASSERT_EQ(made.term_counts[token], expected.size()) << "token " << token;
    for (size_t i = 0; i < expected.size(); ++i) {
      const Term& term = made.terms[size_t{token} * known.what.k + i];
      ASSERT_EQ((plan::RowTerm{term.row, term.source, term.weight, term.ends}), expected[i])
          << "token " << token << ", term " << i;
    }
  }
}

/// Tables of more than one warp's tokens, now and then.
EpCase larger(EpCase what, std::mt19937_64& random) {
  if (random() % 3 == 0) return what;
  what.rules.max_tokens += 20 + static_cast<uint32_t>(random() % 150);
  return tests::other_routing(what, random);
}

class LayoutKernels : public ::testing::TestWithParam<SlotLayout> {};

TEST_P(LayoutKernels, MakeWhatEpMakes) {
  std::mt19937_64 random = tests::seeded_generator("layout kernels");
  for (const topology::Cluster& cluster : tests::small_shapes())
    for (int repetition = 0; repetition < 4; ++repetition) {
      const Known known(larger(tests::random_case(cluster, GetParam(), random), random));
      SCOPED_TRACE(known.what.text());
      const int rank = static_cast<int>(random() % static_cast<uint64_t>(cluster.ranks()));
      DeviceLayout made(known.what, known.experts, rank, random() % 2 == 0);
      made.make(random);
      expect_totals(known, made);
      expect_places(known, made);
      expect_lists(known, made, rank);
      ASSERT_NO_FATAL_FAILURE(expect_targets(known, made, rank));
      expect_received(known, made, rank);
      ASSERT_NO_FATAL_FAILURE(expect_terms(known, made, rank));
      ASSERT_NO_FATAL_FAILURE(expect_homes(known, made, rank));
      expect_counters(known, made, rank, random);
      expect_topk(known, made, random);
      ASSERT_FALSE(HasFailure());
    }
}

INSTANTIATE_TEST_SUITE_P(CudaKernels, LayoutKernels,
                         ::testing::Values(SlotLayout::flat, SlotLayout::rank_major,
                                           SlotLayout::expert_major),
                         [](const auto& param_info) { return std::string(to_string(param_info.param)); });

TEST(LayoutKernels, NameTheFirstWrongEntryOfEachTable) {
  std::mt19937_64 random = tests::seeded_generator("wrong entries");
  EpCase what = tests::random_case(topology::Cluster::uniform(1, 3), SlotLayout::expert_major, random);
  what.experts = 8;
  what.k = 2;
  what.expert_to_rank.clear();
  what.rules.max_tokens = 100;
  what.topk.assign(3, std::vector<int64_t>(200, 7));
  what.topk[1][131] = 8;
  what.topk[1][77] = -2;
  what.topk[1][140] = INT32_MIN;
  what.topk[2][199] = INT32_MAX;
  const ep::ExpertMap experts = tests::experts_of(what);
  for (const bool wide : {false, true}) {
    DeviceLayout made(what, experts, 0, wide);
    made.make(random);
    EXPECT_EQ(made.wrong, (std::vector<uint32_t>{no_row, 77, 199}));
    EXPECT_EQ(made.total(1, made.shape().expert_key(7)), 197U) << "wrong entries are no entries";
  }
}

}  // namespace
}  // namespace epccl::device::kernels::testing
