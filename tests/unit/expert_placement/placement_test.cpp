// Placements from nothing: every expert is somewhere, and ranks have about as much to do as each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "placements.hpp"
#include "shapes.hpp"

namespace epccl::ep {
namespace {

using ::testing::HasSubstr;
using topology::Cluster;

std::vector<int> placed(const Cluster& cluster, const PlacementRules& rules,
                        const std::vector<double>& load) {
  EXPECT_TRUE(check_rules(cluster, rules).ok()) << check_rules(cluster, rules).message();
  const Result<std::vector<int>> made = place_experts(cluster, rules, load, {});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? *made : std::vector<int>{};
}

TEST(Placement, HasEveryExpertWhateverTheLoads) {
  auto random = tests::seeded_generator("placements");
  for (int round = 0; round < 300; ++round) {
    const auto draw = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    const Cluster cluster = Cluster::uniform(draw(1, 3), draw(1, 5));
    PlacementRules rules;
    rules.slots_per_rank = draw(1, 6);
    rules.experts = draw(1, cluster.ranks() * rules.slots_per_rank);
    std::vector<double> load = tests::skewed_loads(random, rules.experts, draw(0, 30) / 10.0);
    for (double& it : load)
      if (draw(0, 4) == 0) it = 0;
    const std::vector<int> made = placed(cluster, rules, load);
    tests::expect_whole(cluster, rules, made);
    EXPECT_EQ(made, placed(cluster, rules, load)) << "twice the same question";
    if (HasFailure()) return;
  }
}

TEST(Placement, SpreadsExpertsWithoutLoad) {
  PlacementRules rules;
  rules.experts = 8;
  rules.slots_per_rank = 3;
  const std::vector<int> made = placed(Cluster::uniform(1, 4), rules, std::vector<double>(8, 0.0));
  tests::expect_whole(Cluster::uniform(1, 4), rules, made);
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(std::ranges::count(std::span(made).subspan(rank * 3, 3), no_expert), 1) << tests::text_of(made);
}

// More slots than copies that could be of use.
TEST(Placement, LeavesSlotsEmptyRatherThanTwoCopiesOnARank) {
  PlacementRules rules;
  rules.experts = 2;
  rules.slots_per_rank = 3;
  const std::vector<int> made = placed(Cluster::uniform(1, 2), rules, {3, 1});
  tests::expect_whole(Cluster::uniform(1, 2), rules, made);
  EXPECT_EQ(tests::imbalance(Cluster::uniform(1, 2), rules, std::vector<double>{3, 1}, made), 1);
}

/// The least that the fullest rank has in any placement, by trying all.
double best_of_all(const Cluster& cluster, const PlacementRules& rules, const std::vector<double>& load) {
  std::vector<int> slots(static_cast<size_t>(cluster.ranks() * rules.slots_per_rank), no_expert);
  double best = 1e300;
  const std::function<void(size_t)> fill = [&](size_t slot) {
    if (slot == slots.size()) {
      for (int expert = 0; expert < rules.experts; ++expert)
        if (std::ranges::find(slots, expert) == slots.end()) return;
      best = std::min(best, balance_of(cluster, rules, load, slots).fullest);
      return;
    }
    for (int expert = no_expert; expert < rules.experts; ++expert) {
      slots[slot] = expert;
      fill(slot + 1);
    }
  };
  fill(0);
  return best;
}

TEST(Placement, IsNearlyTheBestThereIs) {
  auto random = tests::seeded_generator("best placements");
  double worst = 1;
  int best = 0;
  constexpr int rounds = 60;
  for (int round = 0; round < rounds; ++round) {
    const Cluster cluster = Cluster::uniform(1, 2 + round % 2);
    PlacementRules rules;
    rules.slots_per_rank = 2;
    rules.tolerance = 0;
    rules.experts = std::uniform_int_distribution<int>(2, 4)(random);
    const std::vector<double> load = tests::skewed_loads(random, rules.experts, round % 4 * 0.6);
    const double least = best_of_all(cluster, rules, load);
    const double made = balance_of(cluster, rules, load, placed(cluster, rules, load)).fullest;
    ASSERT_GE(made, least * (1 - 1e-9));
    worst = std::max(worst, made / least);
    best += made <= least * (1 + 1e-9) ? 1 : 0;
  }
  EXPECT_LE(worst, 1.25);
  EXPECT_GE(best, rounds * 8 / 10);
}

// DeepSeek-V3: 256 experts, of which some have several times the mean; one slot more than their share on each of 32 ranks, and
// two experts a rank on 144.
TEST(Placement, BalancesDeepSeekV3) {
  auto random = tests::seeded_generator("deepseek-v3");
  for (const auto& [nodes, ranks, slots] :
       {std::tuple(4, 8, 9), std::tuple(18, 8, 2), std::tuple(1, 8, 33)}) {
    const Cluster cluster = Cluster::uniform(nodes, ranks);
    PlacementRules rules;
    rules.experts = 256;
    rules.slots_per_rank = slots;
    const std::vector<double> load = tests::skewed_loads(random, rules.experts, 0.6);
    const std::vector<int> made = placed(cluster, rules, load);
    tests::expect_whole(cluster, rules, made);
    // Of two slots one may have all that there is of the busiest expert's copy; the other has something, too.
    std::vector<int> copies(load.size());
    for (const int expert : made) copies[static_cast<size_t>(expert)] += 1;
    double largest = 0;
    for (size_t expert = 0; expert < load.size(); ++expert)
      largest = std::max(largest, load[expert] / copies[expert]);
    const Balance balance = balance_of(cluster, rules, load, made);
    const double least = std::max(balance.mean, largest + std::ranges::min(load));
    EXPECT_LE(balance.fullest, 1.03 * least)
        << nodes << " nodes, mean " << balance.mean << ", largest " << largest;
  }
}

// The example of EPLB's README (github.com/deepseek-ai/EPLB): its placement leaves 156 and 179.5 on the fullest of 8 ranks.
TEST(Placement, IsNoWorseThanEplbOnItsExample) {
  const Cluster cluster = Cluster::uniform(2, 4);
  PlacementRules rules;
  rules.experts = 12;
  rules.slots_per_rank = 2;
  rules.groups = 4;
  const std::vector<double> first = {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  const std::vector<double> second = {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};
  for (const auto& [load, eplb] : {std::pair(first, 156.0), std::pair(second, 179.5)}) {
    const std::vector<int> made = placed(cluster, rules, load);
    tests::expect_whole(cluster, rules, made);
    EXPECT_LE(balance_of(cluster, rules, load, made).fullest, eplb) << tests::text_of(made);
  }
}

TEST(Placement, KeepsGroupsOnOneNode) {
  auto random = tests::seeded_generator("groups");
  for (const auto& sizes : {std::vector{4, 4}, std::vector{4, 2}, std::vector{3, 3, 3, 3}}) {
    const Cluster cluster = Cluster::from_sizes(sizes);
    PlacementRules rules;
    rules.experts = 64;
    rules.groups = 16;
    rules.slots_per_rank = 16;
    const std::vector<double> load = tests::skewed_loads(random, rules.experts, 0.5);
    const std::vector<int> made = placed(cluster, rules, load);
    tests::expect_whole(cluster, rules, made);
    std::vector<int> node_of_group(16, -1);
    for (size_t slot = 0; slot < made.size(); ++slot) {
      if (made[slot] == no_expert) continue;
      int& node = node_of_group[static_cast<size_t>(made[slot] / 4)];
      const int here = cluster.node_of(static_cast<int>(slot) / 16);
      EXPECT_TRUE(node == -1 || node == here) << "expert " << made[slot];
      node = here;
    }
    EXPECT_LE(tests::imbalance(cluster, rules, load, made), 1.15) << sizes.size();
  }
}

TEST(Placement, OfGroupsThatFitNowhereIsAnError) {
  PlacementRules rules;
  rules.experts = 12;
  rules.groups = 3;
  rules.slots_per_rank = 3;
  const Result<std::vector<int>> made =
      place_experts(Cluster::uniform(2, 2), rules, std::vector<double>(12, 1.0), {});
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.status().message(),
              HasSubstr("of 4 experts has room on no node: 3 groups, 2 nodes, 3 slots"));
}

TEST(Placement, RefusesNumbersThatCannotBe) {
  const Cluster cluster = Cluster::uniform(1, 2);
  const auto refused = [&](int experts, int slots, int groups, double tolerance) {
    PlacementRules rules;
    rules.experts = experts;
    rules.slots_per_rank = slots;
    rules.groups = groups;
    rules.tolerance = tolerance;
    return std::string(check_rules(cluster, rules).message());
  };
  EXPECT_EQ(refused(4, 2, 1, 0), "");
  EXPECT_THAT(refused(5, 2, 1, 0), HasSubstr("5 experts have no room in 4 slots (2 ranks with 2)"));
  EXPECT_THAT(refused(0, 2, 1, 0), HasSubstr("num_experts is 0"));
  EXPECT_THAT(refused(4, 0, 1, 0), HasSubstr("slots_per_rank is 0"));
  EXPECT_THAT(refused(4, 2, 5, 0), HasSubstr("num_expert_groups is 5: 4 experts are not as many groups"));
  EXPECT_THAT(refused(4, 2, 1, -0.1), HasSubstr("tolerance is -0.1"));
  EXPECT_THAT(refused(4, 2, 3, 0), HasSubstr("num_expert_groups is 3: 4 experts are not"));
  PlacementRules grouped;
  grouped.experts = grouped.groups = 257;
  grouped.slots_per_rank = 257;
  EXPECT_THAT(check_rules(cluster, grouped).message(), HasSubstr("these are more than 256"));
  PlacementRules many;
  many.experts = 1 << 14;
  many.slots_per_rank = 1;
  EXPECT_THAT(check_rules(Cluster::uniform(1, 1 << 14), many).message(),
              HasSubstr("16384 experts on 16384 ranks: at most"));
  EXPECT_THAT(refused(4, 1 << 24, 1, 0), HasSubstr("at most 16384 slots"));
}

}  // namespace
}  // namespace epccl::ep
