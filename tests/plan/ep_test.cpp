// Dispatch and combine plans: proved right against an oracle that shares no code with the library, with exactly the rows on
// the network that the routing asks for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "algorithms/ep/dispatch.hpp"
#include "ep/handle/device_plans.hpp"
#include "ep_case.hpp"
#include "plan/hand_outs.hpp"
#include "plan/verifier.hpp"
#include "runtime/queues/hand_outs.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

using ep::SlotLayout;
using tests::ep_row;
using tests::EpCase;
using tests::EpOracle;
using topology::Cluster;

constexpr std::array layouts{SlotLayout::flat, SlotLayout::rank_major, SlotLayout::expert_major};

/// The plans of all ranks.
struct Plans {
  plan::Plan dispatch, combine;
  plan::Plan all_fetch, some_fetch;  // dispatches
};

bool fetches_among_others(int rank) {
  return rank % 3 != 1;
}

// What a GPU's relay hands on in one kernel it hands on in the plan's steps.
uint64_t targets_of(const EpCase& what, const plan::RankPlan& dispatch) {
  const auto program = runtime::make_device_program(dispatch, what.cluster, 1, 1 << 20).value();
  uint64_t rows = 0;
  for (const plan::HandOut& hand_out : program.hand_outs)
    for (uint32_t step = hand_out.first; step < hand_out.first + hand_out.count; ++step)
      rows += program.plan.steps[step].step.rows;
  const runtime::HandOutTable table = make_hand_out_table(program, what.cluster);
  EXPECT_EQ(table.hand_outs.size(), program.hand_outs.size());
  EXPECT_EQ(
      std::ranges::count_if(table.targets, [](const auto& to) { return to.row != device::kernels::no_row; }),
      static_cast<std::ptrdiff_t>(rows));
  return table.targets.size();
}

// A GPU's memory for tables is borrowed before the routing is known.
void expect_room(const EpCase& what, int rank, Strategy strategy, ep::Sizes sizes,
                 const TokenExchange& exchange, const plan::RankPlan& dispatch) {
  const uint64_t targets = targets_of(what, dispatch);
  ep::SlotRules rules = what.rules;
  if (sizes == ep::Sizes::from_routing) rules.max_topk = 0;
  for (const std::optional<Strategy> forced : {std::optional(strategy), std::optional<Strategy>()}) {
    const ep::TableSizes most =
        most_table_bytes(what.cluster, rank, rules, what.rules.max_tokens, what.k, forced);
    EXPECT_LE(ep::table_bytes(*exchange.tables, targets), most.dispatch());
    EXPECT_LE(ep::table_bytes(*exchange.sums), most.combine);
  }
}

Plans build(const EpCase& what, const ep::ExpertMap& experts, const tests::EpViews& views, Strategy strategy,
            ep::Sizes sizes = ep::Sizes::from_routing) {
  TokenParameters parameters;
  parameters.row_bytes = ep_row;
  parameters.scratch_bytes = what.scratch_bytes;
  parameters.contiguous_input = true;
  parameters.turn_blocks = UINT32_MAX;
  for (const ep::SourceHeader& header : views.headers)
    parameters.turn_blocks =
        std::min(parameters.turn_blocks, header.turn_blocks[static_cast<size_t>(strategy)]);
  Plans plans{{what.cluster, fmt::format("dispatch {}", to_string(strategy)), {}},
              {what.cluster, fmt::format("combine {}", to_string(strategy)), {}},
              {what.cluster, fmt::format("fetching dispatch {}", to_string(strategy)), {}},
              {what.cluster, fmt::format("dispatch {}, some fetch", to_string(strategy)), {}}};
  for (int rank = 0; rank < what.cluster.ranks(); ++rank) {
    const ep::LayoutView layout{what.cluster,
                                experts,
                                rank,
                                strategy,
                                views.routings[static_cast<size_t>(rank)],
                                views.slots[static_cast<size_t>(rank)],
                                views.sources[static_cast<size_t>(rank)],
                                sizes};
    TokenExchange exchange = make_exchange(layout).value();
    add_sums(layout, exchange);
    plans.dispatch.ranks.push_back(build_dispatch(what.cluster, exchange, rank, parameters));
    expect_room(what, rank, strategy, sizes, exchange, plans.dispatch.ranks.back());
    plans.combine.ranks.push_back(build_combine(what.cluster, exchange, rank, parameters));
    add_fetched(layout, exchange);
    TokenParameters fetching = parameters;
    fetching.fetch = true;
    plans.all_fetch.ranks.push_back(build_dispatch(what.cluster, exchange, rank, fetching));
    plans.some_fetch.ranks.push_back(fetches_among_others(rank) ? plans.all_fetch.ranks.back()
                                                                : plans.dispatch.ranks.back());
  }
  return plans;
}

uint64_t rows_between(const EpCase& what, const EpOracle& oracle, Strategy strategy, int from, int to) {
  uint64_t rows = 0;
  for (const int source : what.cluster.members(from)) {
    if (strategy == Strategy::gather) rows += what.tokens(source);
    if (strategy == Strategy::dedup) rows += oracle.tokens_for_node(source, to);
    for (const int receiver : what.cluster.members(to))
      if (strategy == Strategy::flat) rows += oracle.tokens_for_rank(source, receiver);
  }
  return rows;
}

bool fits(const tests::EpViews& views, Strategy strategy) {
  return std::ranges::all_of(views.headers, [&](const auto& header) {
    return header.block_tokens[static_cast<size_t>(strategy)] > 0;
  });
}

// Whoever fetches, each row comes from its source and is moved once, and no network sees more of it.
void prove_fetching(const EpOracle& oracle, const std::vector<uint64_t>& inputs, const plan::Plan& plan,
                    const plan::VerifyReport& brought) {
  plan::VerifyReport fetched;
  const Status status = plan::verify(plan, oracle.dispatch(), {}, inputs, &fetched);
  ASSERT_TRUE(status.ok()) << plan.algorithm << ": " << status.message();
  ASSERT_EQ(fetched.links.copied_in_node, brought.links.copied_in_node);
  ASSERT_EQ(fetched.links.copied_to_peers, brought.links.copied_to_peers);
  for (int from = 0; from < plan.cluster.nodes(); ++from)
    for (int to = 0; to < plan.cluster.nodes(); ++to) {
      if (from == to) continue;
      ASSERT_EQ(fetched.links.between_nodes(from, to), brought.links.between_nodes(from, to));
    }
}

void prove(const EpCase& what, const EpOracle& oracle, Strategy strategy, const Plans& plans) {
  plan::VerifyReport there, back;
  std::vector<uint64_t> inputs;
  for (int rank = 0; rank < what.cluster.ranks(); ++rank) inputs.push_back(what.tokens(rank) * ep_row);
  const Status dispatched = plan::verify(plans.dispatch, oracle.dispatch(), {}, inputs, &there);
  ASSERT_TRUE(dispatched.ok()) << dispatched.message();
  prove_fetching(oracle, inputs, plans.all_fetch, there);
  prove_fetching(oracle, inputs, plans.some_fetch, there);
  plan::Plan handed = plans.dispatch;
  for (plan::RankPlan& rank : handed.ranks) rank = plan::with_hand_outs(rank).plan;
  const Status handed_out = plan::verify(handed, oracle.dispatch(), {}, inputs);
  ASSERT_TRUE(handed_out.ok()) << "blocks handed out at once: " << handed_out.message();
  const auto sums = oracle.combine();
  const Status combined = plan::verify(plans.combine, {}, sums, {}, &back);
  ASSERT_TRUE(combined.ok()) << combined.message();
  for (int from = 0; from < what.cluster.nodes(); ++from)
    for (int to = 0; to < what.cluster.nodes(); ++to) {
      const uint64_t rows = from == to ? 0 : rows_between(what, oracle, strategy, from, to);
      ASSERT_EQ(there.links.between_nodes(from, to), rows * ep_row);
      ASSERT_EQ(back.links.between_nodes(to, from), rows * ep_row);
    }
}

void prove(const EpCase& what) {
  SCOPED_TRACE(what.text());
  const ep::ExpertMap experts = tests::experts_of(what);
  const auto views = tests::exchange_layouts(what, experts);
  const EpOracle oracle(what);
  for (int rank = 0; rank < what.cluster.ranks(); ++rank)
    ASSERT_EQ(views.slots[static_cast<size_t>(rank)].slots(static_cast<size_t>(what.cluster.local_of(rank))),
              oracle.rows(rank));
  for (const Strategy strategy : ep::strategies) {
    SCOPED_TRACE(to_string(strategy));
    if (fits(views, strategy)) prove(what, oracle, strategy, build(what, experts, views, strategy));
    if (testing::Test::HasFatalFailure()) return;
  }
}

void use_tables_of(plan::Plan& plan, const plan::Plan& other) {
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    plan.ranks[rank].tables = other.ranks[rank].tables;
    for (plan::Step& step : plan.ranks[rank].steps) count_rows(step, *plan.ranks[rank].tables);
  }
}

// Plans that were made for `first` do what `second` asks for, with the tables of that.
void prove_reuse(const EpCase& first, const EpCase& second) {
  SCOPED_TRACE(second.text());
  const ep::ExpertMap experts = tests::experts_of(first);
  const auto views = tests::exchange_static_layouts(first, experts),
             other_views = tests::exchange_static_layouts(second, experts);
  const EpOracle oracle(second);
  for (const Strategy strategy : ep::strategies) {
    SCOPED_TRACE(to_string(strategy));
    if (!fits(views, strategy)) continue;
    Plans plans = build(first, experts, views, strategy, ep::Sizes::from_maxima);
    const Plans others = build(second, experts, other_views, strategy, ep::Sizes::from_maxima);
    use_tables_of(plans.dispatch, others.dispatch);
    use_tables_of(plans.combine, others.combine);
    use_tables_of(plans.all_fetch, others.all_fetch);
    use_tables_of(plans.some_fetch, others.some_fetch);
    prove(second, oracle, strategy, plans);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ExpertParallel, IsRightForRandomRoutingsOnEveryShape) {
  auto random = tests::seeded_generator("ep");
  for (int repeat = 0; repeat < 6; ++repeat)
    for (const Cluster& cluster : tests::small_shapes())
      for (const SlotLayout layout : layouts) {
        prove(tests::random_case(cluster, layout, random));
        if (HasFatalFailure()) return;
      }
}

TEST(StaticExpertParallel, PlansServeEveryRoutingWithTheSameMaxima) {
  auto random = tests::seeded_generator("static ep");
  for (int repeat = 0; repeat < 6; ++repeat)
    for (const Cluster& cluster : tests::small_shapes())
      for (const SlotLayout layout : {SlotLayout::rank_major, SlotLayout::expert_major}) {
        EpCase first = tests::random_case(cluster, layout, random);
        if (layout == SlotLayout::expert_major) {
          first.rules.capacity = 1 + static_cast<uint32_t>(random() % 20);
          first.rules.pad = true;
        }
        prove_reuse(first, tests::other_routing(first, random));
        if (HasFatalFailure()) return;
      }
}

// Every rank has `tokens` tokens; entries come from `choose(rank, token, position)`.
template <typename Choose>
EpCase regular_case(const Cluster& cluster, uint32_t experts, uint32_t k, uint32_t tokens, SlotLayout layout,
                    Choose choose) {
  EpCase made{cluster, experts, {}, k, {}, {layout, tokens, 1, 0, false, k}, 4096, 8 << 20};
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    auto& table = made.topk.emplace_back();
    for (uint32_t token = 0; token < tokens; ++token)
      for (uint32_t position = 0; position < k; ++position) table.push_back(choose(rank, token, position));
  }
  return made;
}

TEST(ExpertParallel, IsRightWhereOneExpertTakesEverything) {
  for (const Cluster& cluster : tests::small_shapes())
    for (const SlotLayout layout : layouts)
      prove(regular_case(cluster, 16, 4, 9, layout,
                         [](int, uint32_t, uint32_t position) { return position == 2 ? 5 : -1; }));
}

TEST(ExpertParallel, IsRightWhereNobodyHasATokenOrNoTokenHasAnExpert) {
  for (const Cluster& cluster : tests::small_shapes())
    for (const SlotLayout layout : layouts) {
      prove(regular_case(cluster, 8, 2, 0, layout, [](int, uint32_t, uint32_t) { return 0; }));
      prove(regular_case(cluster, 8, 2, 3, layout, [](int, uint32_t, uint32_t) { return -1; }));
    }
}

TEST(ExpertParallel, IsRightOnManyNodes) {
  auto random = tests::seeded_generator("ep on many nodes");
  const Cluster cluster = Cluster::uniform(64, 8);
  prove(regular_case(cluster, 1024, 8, 4, SlotLayout::expert_major,
                     [&](int, uint32_t, uint32_t) { return static_cast<int64_t>(random() % 1024); }));
}

// DESIGN's closed form: a token with k of E experts reaches G * (1 - C(E - E/G, k) / C(E, k)) of G nodes, on average.
TEST(ExpertParallel, SendsAsManyCopiesAsTheClosedFormExpects) {
  auto random = tests::seeded_generator("ep closed form");
  const uint32_t experts = 256, k = 8, tokens = 250;
  const std::vector<std::pair<int, double>> expected{{4, 3.61}, {8, 5.30}, {16, 6.52}};
  for (const auto& [nodes, distinct] : expected) {
    std::vector<int64_t> deck(experts);
    std::iota(deck.begin(), deck.end(), 0);
    const EpCase what =
        regular_case(Cluster::uniform(nodes, 1), experts, k, tokens, SlotLayout::flat,
                     [&](int, uint32_t, uint32_t position) {
                       std::swap(deck[position], deck[position + random() % (experts - position)]);
                       return deck[position];
                     });
    const EpOracle oracle(what);
    uint64_t reached = 0;
    for (int source = 0; source < nodes; ++source)
      for (int node = 0; node < nodes; ++node) reached += oracle.tokens_for_node(source, node);
    EXPECT_NEAR(static_cast<double>(reached) / (tokens * nodes), distinct, 0.1);
    prove(what);
  }
}

}  // namespace
}  // namespace epccl::algorithms
