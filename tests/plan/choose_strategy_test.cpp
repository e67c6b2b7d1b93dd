// Which strategy the cost model picks.
#include "algorithms/ep/choose_strategy.hpp"

#include <gtest/gtest.h>

namespace epccl::algorithms {
namespace {

using Loads = std::array<std::vector<NodeLoad>, 3>;
constexpr std::array<uint64_t, 3> all_fit{};

/// Four nodes that send as many rows each, in so many messages.
Loads loads(uint64_t flat, uint64_t gather, uint64_t dedup, uint64_t flat_messages = 24,
            uint64_t messages = 24) {
  return {std::vector<NodeLoad>(4, {flat, flat_messages}), std::vector<NodeLoad>(4, {gather, messages}),
          std::vector<NodeLoad>(4, {dedup, messages})};
}

const topology::Cluster cluster = topology::Cluster::uniform(4, 8);

Strategy chosen(const Loads& of, const CostParameters& cost, std::optional<Strategy> forced = {}) {
  return choose_strategy(cluster, of, all_fit, 4096, cost, forced).value().strategy;
}

CostParameters slow_wire() {
  CostParameters cost;
  cost.link_rate = 0.1e9;
  cost.cores_per_node = 8;
  return cost;
}

CostParameters slow_cores() {
  CostParameters cost;
  cost.link_rate = 100e9;
  cost.cores_per_node = 0.5;
  return cost;
}

TEST(ChooseStrategy, SendsFewestRowsWhereTheWireIsSlow) {
  EXPECT_EQ(chosen(loads(8000, 4000, 2000), slow_wire()), Strategy::dedup);
  EXPECT_EQ(chosen(loads(8000, 4000, 3600), slow_wire()), Strategy::dedup);
}

TEST(ChooseStrategy, DoesNotPackWhereCoresAreSlowAndNearlyEveryTokenGoesEverywhere) {
  EXPECT_EQ(chosen(loads(8000, 4000, 3600), slow_cores()), Strategy::gather);
  EXPECT_EQ(chosen(loads(8000, 4000, 1000), slow_cores()), Strategy::dedup);
}

TEST(ChooseStrategy, GoesStraightWhereThatSavesAHopAndCostsNothing) {
  EXPECT_EQ(chosen(loads(100, 300, 100, 24, 24), slow_wire()), Strategy::flat);
}

TEST(ChooseStrategy, AvoidsManyMessages) {
  EXPECT_EQ(chosen(loads(100, 300, 100, 2400, 24), slow_wire()), Strategy::dedup);
}

TEST(ChooseStrategy, CountsTheWayBetweenNodes) {
  const auto seconds = [](double latency) {
    CostParameters cost = slow_wire();
    cost.network_latency = latency;
    return choose_strategy(cluster, loads(8000, 4000, 2000), all_fit, 4096, cost, {}).value().seconds;
  };
  const auto near = seconds(0), far = seconds(1);
  for (size_t strategy = 0; strategy < near.size(); ++strategy)
    EXPECT_DOUBLE_EQ(far[strategy], near[strategy] + 1);
}

TEST(ChooseStrategy, DoesAsItIsTold) {
  for (const Strategy strategy : {Strategy::flat, Strategy::gather, Strategy::dedup})
    EXPECT_EQ(chosen(loads(8000, 4000, 2000), slow_wire(), strategy), strategy);
}

TEST(ChooseStrategy, LeavesOutWhatDoesNotFit) {
  const auto choice =
      choose_strategy(cluster, loads(8000, 4000, 2000), {0, 0, 1 << 20}, 4096, slow_wire(), {});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->strategy, Strategy::gather);
  EXPECT_LT(choice->seconds[static_cast<size_t>(Strategy::dedup)], 0);
  const auto refused =
      choose_strategy(cluster, loads(8000, 4000, 2000), {0, 0, 1 << 20}, 4096, slow_wire(), Strategy::dedup);
  EXPECT_EQ(refused.status().code(), Code::invalid_argument);
  EXPECT_NE(refused.status().message().find("dedup, as they do with flat or gather"), std::string::npos);
}

TEST(ChooseStrategy, SaysHowMuchScratchWouldDo) {
  const std::array<uint64_t, 3> needed{3 << 20, 2 << 20, 1 << 20};
  const auto told = [&](std::optional<Strategy> forced) {
    return choose_strategy(cluster, loads(8000, 4000, 2000), needed, 4096, slow_wire(), forced)
        .status()
        .message();
  };
  EXPECT_NE(told({}).find("raise EPCCL_SCRATCH_SIZE to 1048576 bytes"), std::string::npos) << told({});
  EXPECT_NE(told(Strategy::gather).find("gather: raise EPCCL_SCRATCH_SIZE to 2097152 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace epccl::algorithms
