// The cost model's choices, where they are beyond doubt.
#include <gtest/gtest.h>

#include "algorithms/alltoall/choose.hpp"

namespace epccl::algorithms {
namespace {

using topology::Cluster;

CostParameters four_gigabit() {
  CostParameters cost;
  cost.link_rate = 4e9 / 8;
  return cost;
}

TEST(Choose, TakesFlatOnOneNode) {
  EXPECT_EQ(choose(Cluster::uniform(1, 8), {1024}, {}, {}, nullptr, -1).algorithm, Algorithm::flat);
}

TEST(Choose, TakesTwoStageWithOneCarrierForManySmallMessages) {
  const Choice choice = choose(Cluster::uniform(4, 8), {64}, four_gigabit(), {}, nullptr, -1);
  EXPECT_EQ(choice.algorithm, Algorithm::two_stage);
  EXPECT_EQ(choice.carriers, 1);
  EXPECT_LT(choice.two_stage_seconds, choice.flat_seconds);
}

TEST(Choose, TakesFlatBetweenNodesOfOneRank) {
  EXPECT_EQ(choose(Cluster::uniform(2, 1), {1 << 20}, four_gigabit(), {}, nullptr, -1).algorithm,
            Algorithm::flat);
}

TEST(Choose, ObeysTheUser) {
  const Algorithm forced = Algorithm::two_stage;
  const Choice choice = choose(Cluster::uniform(2, 1), {1 << 20}, four_gigabit(), {}, &forced, 2);
  EXPECT_EQ(choice.algorithm, Algorithm::two_stage);
  EXPECT_EQ(choice.carriers, 2);
}

// Sockets copy what leaves the node once more.
TEST(Choose, ExpectsACopyOfWhatIsSent) {
  CostParameters cost;
  cost.link_rate = 1e30;
  cost.copy_rate = 1;
  cost.network_latency = cost.message_overhead = cost.signal_latency = 0;
  EXPECT_DOUBLE_EQ(predict(Algorithm::flat, 0, Cluster::uniform(1, 2), {100}, cost, {}), 4 * 100);
  EXPECT_DOUBLE_EQ(predict(Algorithm::flat, 0, Cluster::uniform(3, 2), {100}, cost, {}), (4 + 8) * 100);
}

TEST(Choose, LetsRelaysWriteMessagesOfMoreThanTwoChunks) {
  Parameters parameters;
  parameters.direct = true;
  const auto pushes = [&](uint64_t node_pair_bytes) {
    return choose(Cluster::uniform(2, 4), {node_pair_bytes / 16}, four_gigabit(), parameters, nullptr, -1)
        .push;
  };
  EXPECT_FALSE(pushes(2 * parameters.chunk_bytes));
  EXPECT_TRUE(pushes(2 * parameters.chunk_bytes + 16));
}

// 8 ranks on each of 4 nodes.
TEST(CarryingPays, ForAnAlltoallOfSmallMessages) {
  for (const uint64_t bytes : {0, 64, 1024, 4 << 10})
    EXPECT_TRUE(carrying_pays({24, 24 * bytes, 3}, four_gigabit())) << bytes << " bytes a message";
}

TEST(CarryingPays, NotWhereCopiesTakeLonger) {
  CostParameters slow = four_gigabit();
  slow.copy_rate = 0.5e9;
  EXPECT_TRUE(carrying_pays({24, 24 * 64, 3}, slow));
  EXPECT_FALSE(carrying_pays({24, 24 * 4096, 3}, slow));
}

TEST(CarryingPays, NotWhereThereIsOneMessageForEachNode) {
  EXPECT_FALSE(carrying_pays({1, 64, 1}, four_gigabit()));
  EXPECT_FALSE(carrying_pays({3, 3 * 64, 3}, four_gigabit()));
}

}  // namespace
}  // namespace epccl::algorithms
