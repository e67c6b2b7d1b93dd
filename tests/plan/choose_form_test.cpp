// What the cost model picks for the collectives, and that it picks alike for what is alike.
#include <gtest/gtest.h>

#include "algorithms/collectives/choose_form.hpp"

namespace epccl::algorithms {
namespace {

CostParameters slow_network() {
  CostParameters cost;
  cost.link_rate = 125e6;
  return cost;
}

FormChoice choose(int nodes, int local, Collective kind, uint64_t bytes, std::optional<Form> forced = {}) {
  return choose_form(topology::Cluster::uniform(nodes, local), {kind, bytes, 0, 4}, slow_network(), {},
                     {forced, {}, {}});
}

TEST(ChooseForm, TakesTwoLevelsWhereManyRanksOfManyNodesAddUp) {
  for (const Collective kind : {Collective::allreduce, Collective::reduce, Collective::reduce_scatter,
                                Collective::allgather, Collective::broadcast})
    for (const uint64_t bytes : {64, 65536, 1 << 24})
      EXPECT_EQ(choose(4, 8, kind, bytes).parameters.form, Form::two_level)
          << to_string(kind) << " " << bytes;
}

TEST(ChooseForm, TakesTheOneThatIsForced) {
  EXPECT_EQ(choose(4, 8, Collective::allreduce, 1 << 20, Form::flat).parameters.form, Form::flat);
  EXPECT_EQ(choose(4, 8, Collective::allreduce, 1 << 20, Form::two_level).parameters.form, Form::two_level);
}

TEST(ChooseForm, LetsEveryRankAddUpAloneWhereLittleIsAddedUp) {
  EXPECT_EQ(choose(1, 8, Collective::allreduce, 64).parameters.variant, Variant::alone);
  EXPECT_NE(choose(1, 8, Collective::allreduce, 1 << 20).parameters.variant, Variant::alone);
}

// One rank alone would add up everything, and write it into the buffers of all others.
TEST(ChooseForm, SharesLargeSumsAmongTheRanksOfANode) {
  CostParameters cost;
  cost.cores_per_node = 2;
  for (const Collective kind : {Collective::allreduce, Collective::reduce})
    for (const int ranks : {3, 4, 8})
      EXPECT_NE(choose_form(topology::Cluster::uniform(1, ranks), {kind, 1 << 24, 0, 4}, cost, {}, {})
                    .parameters.carriers,
                1)
          << to_string(kind) << " of " << ranks << " ranks";
}

// Over two nodes there is nothing to gain: whole sums take one message less.
TEST(ChooseForm, SplitsLargeSumsAmongMoreThanTwoNodes) {
  EXPECT_EQ(choose(4, 4, Collective::allreduce, 1 << 24).parameters.variant, Variant::split);
  EXPECT_NE(choose(4, 4, Collective::allreduce, 64).parameters.variant, Variant::split);
  EXPECT_NE(choose(2, 4, Collective::allreduce, 1 << 24).parameters.variant, Variant::split);
}

// One message a node instead of one a rank, but one rank adds up all of it.
TEST(ChooseForm, SendsSmallReducedBlocksOfANodeTogether) {
  EXPECT_EQ(choose(2, 8, Collective::reduce_scatter, 64).parameters.variant, Variant::together);
  EXPECT_NE(choose(2, 8, Collective::reduce_scatter, 1 << 20).parameters.variant, Variant::together);
}

TEST(ChooseForm, RelaysWhatIsLargeFromNodeToNode) {
  EXPECT_EQ(choose(8, 2, Collective::broadcast, 1 << 24).parameters.variant, Variant::relay);
  EXPECT_NE(choose(8, 2, Collective::broadcast, 64).parameters.variant, Variant::relay);
}

FormChoice choose(int nodes, Collective kind, uint64_t bytes, const Forced& forced) {
  return choose_form(topology::Cluster::uniform(nodes, 8), {kind, bytes, 0, 4}, slow_network(), {}, forced);
}

TEST(ChooseForm, TakesTheVariantThatIsForcedWhereACallHasIt) {
  const auto variant = [](int nodes, Collective kind, Variant forced) {
    return choose(nodes, kind, 4096, {{}, forced, {}}).parameters.variant;
  };
  using enum Collective;
  for (const Variant forced : {Variant::plain, Variant::tree, Variant::split})
    EXPECT_EQ(variant(4, allreduce, forced), forced) << to_string(forced);
  for (const Variant forced : {Variant::plain, Variant::tree, Variant::relay})
    for (const Collective kind : {broadcast, reduce})
      EXPECT_EQ(variant(4, kind, forced), forced) << to_string(kind) << " " << to_string(forced);
  for (const Variant forced : {Variant::plain, Variant::together})
    EXPECT_EQ(variant(2, reduce_scatter, forced), forced) << to_string(forced);
  for (const Variant forced : {Variant::plain, Variant::alone})
    EXPECT_EQ(variant(1, allreduce, forced), forced) << to_string(forced);
  EXPECT_EQ(variant(4, allgather, Variant::tree), Variant::plain) << "it has none";
}

TEST(ChooseForm, AForcedVariantIsOfTheFormThatHasIt) {
  const Forced tree{{}, Variant::tree, {}}, flat{Form::flat, Variant::tree, {}};
  for (const uint64_t bytes : {64, 1 << 24}) {
    EXPECT_EQ(choose(4, Collective::allreduce, bytes, tree).parameters.form, Form::two_level) << bytes;
    EXPECT_EQ(choose(4, Collective::allreduce, bytes, flat).parameters.form, Form::flat) << bytes;
    EXPECT_EQ(choose(4, Collective::allreduce, bytes, flat).parameters.variant, Variant::plain) << bytes;
  }
}

TEST(ChooseForm, TakesAsManyCarriersAsAreForced) {
  for (const Collective kind : {Collective::allreduce, Collective::reduce})
    for (const int nodes : {1, 2, 4})
      for (const uint64_t bytes : {64, 1 << 24})
        for (const int carriers : {1, 3, 8, 100})
          EXPECT_EQ(choose(nodes, kind, bytes, {Form::two_level, {}, carriers}).parameters.carriers,
                    std::min(carriers, 8))
              << to_string(kind) << " of " << bytes << " bytes, " << nodes << " nodes";
}

CostParameters eight_cores() {
  CostParameters cost;
  cost.cores_per_node = 8;
  return cost;
}

TEST(ChooseForm, HasAnAnswerForNothing) {
  EXPECT_LT(choose(4, 2, Collective::allreduce, 0).seconds, 1e-3);
}

// A carrier also writes what it has made into the outputs of its node, and its messages are made on its core.
TEST(ChooseForm, LetsAllRanksCarryLargeSums) {
  for (const int nodes : {1, 2, 4, 8, 16, 32, 64, 128})
    for (const Collective kind : {Collective::allreduce, Collective::reduce})
      EXPECT_EQ(choose_form(topology::Cluster::uniform(nodes, 8), {kind, 1 << 30, 0, 4}, eight_cores(), {},
                            {Form::two_level, {}, {}})
                    .parameters.carriers,
                8)
          << to_string(kind) << " of " << nodes << " nodes";
}

TEST(ChooseForm, LetsOneRankOfANodeCarrySmallSums) {
  for (const CostParameters& cost : {slow_network(), eight_cores()})
    for (const int nodes : {1, 4, 16})
      EXPECT_EQ(
          choose_form(topology::Cluster::uniform(nodes, 8), {Collective::allreduce, 64, 0, 4}, cost, {}, {})
              .parameters.carriers,
          1)
          << nodes << " nodes";
}

// One core does it all, however many ranks it serves, so all ways take as long.
TEST(ChooseForm, LetsAllRanksCarryWhereThatCostsNothing) {
  CostParameters cost;
  cost.cores_per_node = 1;
  const CollectiveSpec call{Collective::allreduce, 1 << 20, 0, 4};
  EXPECT_EQ(choose_form(topology::Cluster::uniform(1, 8), call, cost, {}, {}).parameters.carriers, 8);
}

TEST(ChooseForm, LetsNoMoreRanksCarryThanTheSmallestNodeHas) {
  const auto cluster = topology::Cluster::from_sizes({8, 1});
  const CollectiveSpec call{Collective::allreduce, 1 << 30, 0, 4};
  EXPECT_EQ(choose_form(cluster, call, eight_cores(), {}, {Form::two_level, {}, {}}).parameters.carriers, 1);
}

TEST(ChooseForm, FeedsAllRailsThatGetAChunkEach) {
  const auto cluster = topology::Cluster::uniform(4, 8);
  const auto carriers = [&](uint64_t bytes, int least) {
    return carriers_of_rails(cluster, {Collective::allreduce, bytes, 0, 4}, 1 << 20, least);
  };
  EXPECT_EQ(carriers(1 << 30, 2), 8);
  EXPECT_EQ(carriers(3 << 20, 1), 3);
  EXPECT_EQ(carriers(4096, 2), 2) << "as cores would";
}

// In log2(nodes) steps, not in a message for each node.
TEST(ChooseForm, TakesTreesForWhatIsSmallOnManyNodes) {
  for (const Collective kind : {Collective::allreduce, Collective::reduce, Collective::broadcast}) {
    const auto many =
        choose_form(topology::Cluster::uniform(128, 8), {kind, 64, 0, 4}, eight_cores(), {}, {});
    EXPECT_EQ(many.parameters.variant, Variant::tree) << to_string(kind);
    EXPECT_LT(many.seconds, 500e-6) << to_string(kind);
    EXPECT_NE(choose(2, 8, kind, 64).parameters.variant, Variant::tree) << to_string(kind);
    EXPECT_NE(choose(128, 8, kind, 1 << 28).parameters.variant, Variant::tree) << to_string(kind);
  }
}

TEST(ChooseForm, KeepsScaledInputsInTheirNodes) {
  CollectiveParameters scaled;
  scaled.scaled = true;
  const auto cluster = topology::Cluster::uniform(2, 1);
  const CollectiveSpec call{Collective::allreduce, 4096, 0, 4};
  EXPECT_EQ(choose_form(cluster, call, slow_network(), scaled, {Form::flat, {}, {}}).parameters.form,
            Form::two_level);
}

TEST(ChooseForm, ExpectsMoreTimeForMoreBytes) {
  for (const Collective kind :
       {Collective::allgather, Collective::reduce_scatter, Collective::allreduce, Collective::broadcast,
        Collective::reduce, Collective::gather, Collective::scatter}) {
    double before = 0;
    for (uint64_t bytes = 1 << 16; bytes <= 1 << 26; bytes *= 4) {
      const double now = choose(2, 4, kind, bytes).seconds;
      EXPECT_GT(now, before) << to_string(kind) << " " << bytes;
      before = now;
    }
  }
}

}  // namespace
}  // namespace epccl::algorithms
