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

// 8 ranks on each of 4 nodes.
TEST(CarryingPays, ForAnAlltoallOfSmallMessages) {
  for (const uint64_t bytes : {0, 64, 1024, 4 << 10})
    EXPECT_TRUE(carrying_pays({24, 24 * bytes, 3}, four_gigabit())) << bytes << " bytes a message";
}

TEST(CarryingPays, NotWhereThereIsOneMessageForEachNode) {
  EXPECT_FALSE(carrying_pays({1, 64, 1}, four_gigabit()));
  EXPECT_FALSE(carrying_pays({3, 3 * 64, 3}, four_gigabit()));
}

}  // namespace
}  // namespace epccl::algorithms
