// From one placement to a better one: little moves, and what need not move stays where it is.
#include <gtest/gtest.h>

#include <algorithm>

#include "placements.hpp"
#include "shapes.hpp"

namespace epccl::ep {
namespace {

using topology::Cluster;

std::vector<int> better(const Cluster& cluster, const PlacementRules& rules, const std::vector<double>& load,
                        const std::vector<int>& before) {
  const Result<std::vector<int>> made = place_experts(cluster, rules, load, before);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? *made : std::vector<int>{};
}

PlacementRules rules_of(int experts, int slots) {
  PlacementRules rules;
  rules.experts = experts;
  rules.slots_per_rank = slots;
  return rules;
}

TEST(BetterPlacement, IsTheSameWhileLoadsAreWithinTheTolerance) {
  const Cluster cluster = Cluster::uniform(1, 2);
  PlacementRules rules = rules_of(4, 2);
  const std::vector<int> before = {3, 0, 2, 1};
  EXPECT_EQ(better(cluster, rules, {10, 10, 10, 10.2}, before), before);
  rules.tolerance = 0;
  EXPECT_EQ(better(cluster, rules, {10, 10, 10, 10.2}, before), before) << "no change makes it better";
  rules.tolerance = 1;
  EXPECT_EQ(better(cluster, rules, {40, 10, 10, 10}, before), before);
}

TEST(BetterPlacement, ExchangesTwoExperts) {
  // Rank 0 has 40 + 30, rank 1 has 10 + 20: 40 for 20, or 30 for 10.
  const std::vector<int> after =
      better(Cluster::uniform(1, 2), rules_of(4, 2), {40, 30, 10, 20}, {0, 1, 2, 3});
  EXPECT_EQ(after, (std::vector<int>{3, 1, 2, 0}));
}

// Of expert 0 first, which leaves 15 and 25; then of the other.
TEST(BetterPlacement, CopiesTheExpertThatHasMostIntoAnEmptySlot) {
  const std::vector<int> after =
      better(Cluster::uniform(1, 2), rules_of(2, 2), {30, 10}, {0, no_expert, 1, no_expert});
  EXPECT_EQ(after, (std::vector<int>{0, 1, 1, 0}));
}

TEST(BetterPlacement, GivesTheSlotOfACopyThatIsNotNeededToOneThatIs) {
  // Expert 1 has been the one with two copies.
  const std::vector<int> after = better(Cluster::uniform(1, 2), rules_of(3, 2), {40, 4, 4}, {0, 1, 2, 1});
  EXPECT_EQ(after, (std::vector<int>{0, 1, 2, 0}));
}

// What is good enough stays, though a rank has an expert twice.
TEST(BetterPlacement, LeavesSecondCopiesOnARankWhileItCan) {
  const Cluster cluster = Cluster::uniform(1, 2);
  const std::vector<int> twice = {0, 0, 1, 1};
  EXPECT_EQ(better(cluster, rules_of(2, 2), {10, 10}, twice), twice);
  const std::vector<int> after = better(cluster, rules_of(2, 2), {30, 10}, twice);
  tests::expect_whole(cluster, rules_of(2, 2), after);
  EXPECT_EQ(tests::imbalance(cluster, rules_of(2, 2), std::vector<double>{30, 10}, after), 1);
}

// Moves go to the rank that has most, on whichever node it is.
TEST(BetterPlacement, SpendsMovesWhereTheFullestRankIs) {
  const Cluster cluster = Cluster::uniform(2, 2);
  PlacementRules rules = rules_of(8, 2);
  rules.groups = 2;
  rules.max_moves = 2;
  const std::vector<int> before = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<double> load = {30, 25, 25, 20, 60, 30, 5, 5};
  const std::vector<int> after = better(cluster, rules, load, before);
  EXPECT_EQ(std::vector<int>(after.begin(), after.begin() + 4),
            std::vector<int>(before.begin(), before.begin() + 4));
  EXPECT_DOUBLE_EQ(balance_of(cluster, rules, load, after).fullest, 65);
}

TEST(BetterPlacement, OfGroupsStaysWithinTheToleranceOfAll) {
  const Cluster cluster = Cluster::uniform(2, 2);
  PlacementRules rules = rules_of(8, 2);
  rules.groups = 2;
  rules.tolerance = 0.12;
  const std::vector<int> before = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(better(cluster, rules, {55, 55, 55, 55, 50, 52, 42, 36}, before), before);
}

TEST(BetterPlacement, HasEveryExpertWhateverWasThere) {
  auto random = tests::seeded_generator("broken placements");
  for (int round = 0; round < 300; ++round) {
    const auto draw = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    const Cluster cluster = Cluster::uniform(draw(1, 3), draw(1, 5));
    PlacementRules rules = rules_of(1, draw(1, 6));
    rules.experts = draw(1, cluster.ranks() * rules.slots_per_rank);
    for (const int groups : {2, 3, 4})
      if (draw(0, 3) == 0 && rules.experts % groups == 0 && cluster.ranks() > groups) rules.groups = groups;
    if (draw(0, 1) == 0) rules.max_moves = static_cast<uint64_t>(draw(0, 5));
    const std::vector<double> load = tests::skewed_loads(random, rules.experts, draw(0, 30) / 10.0);
    const std::vector<int> before = tests::random_placement(random, cluster, rules);
    if (rules.groups > 1 && !place_experts(cluster, rules, load, before).ok()) continue;
    const std::vector<int> after = better(cluster, rules, load, before);
    // What is good enough stays, with second copies on a rank.
    if (after != before) tests::expect_whole(cluster, rules, after);
    for (int expert = 0; expert < rules.experts; ++expert)
      EXPECT_NE(std::ranges::find(after, expert), after.end()) << expert << ": " << tests::text_of(after);
    if (HasFailure()) return;
  }
}

TEST(BetterPlacement, MovesNoMoreThanItMay) {
  auto random = tests::seeded_generator("few moves");
  const Cluster cluster = Cluster::uniform(2, 4);
  PlacementRules rules = rules_of(32, 5);
  for (int round = 0; round < 40; ++round) {
    rules.groups = round % 2 == 0 ? 1 : 8;
    const std::vector<int> before = better(cluster, rules, tests::skewed_loads(random, rules.experts, 0.8),
                                           tests::random_placement(random, cluster, rules));
    const std::vector<double> load = tests::skewed_loads(random, rules.experts, 0.8);
    const double was = tests::imbalance(cluster, rules, load, before);
    for (const uint64_t moves : {0, 1, 2, 4, 8, 16}) {
      PlacementRules few = rules;
      few.max_moves = moves;
      const std::vector<int> after = better(cluster, few, load, before);
      tests::expect_whole(cluster, rules, after);
      EXPECT_LE(tests::moves_between(rules, before, after), moves);
      const double now = tests::imbalance(cluster, rules, load, after);
      EXPECT_LE(now, was * (1 + 1e-9)) << moves;
      if (moves == 16) {
        EXPECT_LT(now, was) << "of " << was;
      }
    }
  }
}

// Some loads are others than before: what is as well balanced as from nothing moves a small part of that.
TEST(BetterPlacement, MovesLittleWhereLittleHasChanged) {
  auto random = tests::seeded_generator("little has changed");
  const Cluster cluster = Cluster::uniform(4, 8);
  const PlacementRules rules = rules_of(256, 9);
  for (int round = 0; round < 3; ++round) {
    std::vector<double> load = tests::skewed_loads(random, rules.experts, 0.6);
    const std::vector<int> before = better(cluster, rules, load, {});
    for (int changed = 0; changed < 16; ++changed)
      std::swap(load[std::uniform_int_distribution<size_t>(0, 255)(random)],
                load[std::uniform_int_distribution<size_t>(0, 255)(random)]);
    const std::vector<int> after = better(cluster, rules, load, before);
    tests::expect_whole(cluster, rules, after);
    EXPECT_LE(tests::imbalance(cluster, rules, load, after), 1.03);
    EXPECT_LE(tests::moves_between(rules, before, after), 80U) << "of 288";
    for (size_t slot = 0; slot < before.size(); ++slot) {
      const auto here = std::span(after).subspan(slot / 9 * 9, 9);
      if (std::ranges::find(here, before[slot]) != here.end()) {
        EXPECT_EQ(after[slot], before[slot])
            << "slot " << slot << " is another's, and its expert is still here";
      }
    }
  }
}

// Loads that have nothing to do with those before are balanced as from nothing.
TEST(BetterPlacement, IsAsGoodAsOneFromNothing) {
  auto random = tests::seeded_generator("other loads");
  const Cluster cluster = Cluster::uniform(4, 8);
  const PlacementRules rules = rules_of(256, 9);
  for (int round = 0; round < 3; ++round) {
    const std::vector<int> before =
        better(cluster, rules, tests::skewed_loads(random, rules.experts, 0.6), {});
    const std::vector<double> load = tests::skewed_loads(random, rules.experts, 0.6);
    EXPECT_LE(tests::imbalance(cluster, rules, load, better(cluster, rules, load, before)), 1.05);
  }
}

// Steps get stuck there; of a placement from nothing each rank has the set of which it has most.
TEST(BetterPlacement, MovesLessThanOneFromNothingWouldWhereItIsTaken) {
  auto random = tests::seeded_generator("from nothing");
  for (const int groups : {1, 4}) {
    const Cluster cluster = Cluster::uniform(groups == 1 ? 1 : 2, groups == 1 ? 160 : 80);
    PlacementRules rules = rules_of(128, 2);
    rules.groups = groups;
    const std::vector<int> before =
        better(cluster, rules, tests::skewed_loads(random, rules.experts, 0.6), {});
    const std::vector<double> load = tests::skewed_loads(random, rules.experts, 0.6);
    const std::vector<int> nothing = better(cluster, rules, load, {}),
                           after = better(cluster, rules, load, before);
    tests::expect_whole(cluster, rules, after);
    // With groups, these stay where they are.
    const double much = 1.06 * tests::imbalance(cluster, rules, load, nothing);
    EXPECT_TRUE(groups > 1 || tests::imbalance(cluster, rules, load, after) <= much) << much;
    EXPECT_LT(10 * tests::moves_between(rules, before, after),
              9 * tests::moves_between(rules, before, nothing));
    for (size_t slot = 0; slot < after.size() && groups > 1; ++slot)
      for (size_t other = 0; other < slot; ++other)
        if (after[slot] >= 0 && after[other] >= 0 && after[slot] / 32 == after[other] / 32) {
          EXPECT_EQ(slot / 160, other / 160) << "group " << after[slot] / 32 << " is on two nodes";
        }
  }
}

// A node is gone, and its ranks are others now, with nothing: copies elsewhere stay, and each expert is somewhere again.
TEST(BetterPlacement, BringsLostExpertsBack) {
  auto random = tests::seeded_generator("lost experts");
  const Cluster cluster = Cluster::uniform(2, 4);
  const PlacementRules rules = rules_of(24, 4);
  const std::vector<double> load = tests::skewed_loads(random, rules.experts, 0.7);
  std::vector<int> before = better(cluster, rules, load, {});
  std::fill(before.begin() + 16, before.end(), no_expert);
  const std::vector<int> after = better(cluster, rules, load, before);
  tests::expect_whole(cluster, rules, after);
  EXPECT_LE(tests::imbalance(cluster, rules, load, after), 1.1);
}

TEST(BetterPlacement, LeavesGroupsOnTheirNodes) {
  auto random = tests::seeded_generator("groups that stay");
  const Cluster cluster = Cluster::uniform(2, 4);
  PlacementRules rules = rules_of(64, 10);
  rules.groups = 8;
  std::vector<double> load = tests::skewed_loads(random, rules.experts, 0.3);
  const std::vector<int> before = better(cluster, rules, load, {});
  const auto node_of = [&](const std::vector<int>& placement, int expert) {
    return (std::ranges::find(placement, expert) - placement.begin()) / 40;
  };
  // Within each group another expert has most.
  for (size_t group = 0; group < 8; ++group) std::swap(load[group * 8], load[group * 8 + 5]);
  const std::vector<int> after = better(cluster, rules, load, before);
  tests::expect_whole(cluster, rules, after);
  for (int expert = 0; expert < 64; ++expert)
    EXPECT_EQ(node_of(before, expert), node_of(after, expert)) << expert;
  EXPECT_LE(tests::imbalance(cluster, rules, load, after), 1.1);
  // All that the first node has to do is more than it can share among its ranks.
  for (int expert = 0; expert < 64; ++expert)
    if (node_of(after, expert) == 0) load[static_cast<size_t>(expert)] *= 3;
  const std::vector<int> spread = better(cluster, rules, load, after);
  tests::expect_whole(cluster, rules, spread);
  EXPECT_LE(tests::imbalance(cluster, rules, load, spread), 1.15);
}

}  // namespace
}  // namespace epccl::ep
