// How many cores the cost model takes a node's ranks to have.
#include <gtest/gtest.h>

#include "runtime/comm/rank_info.hpp"

namespace epccl::runtime {
namespace {

RankInfo on_cores(uint64_t set, int32_t cores) {
  RankInfo info;
  info.core_set = set;
  info.cores = cores;
  return info;
}

double cores(const std::vector<int>& ranks_per_node, const std::vector<RankInfo>& infos) {
  return cost_parameters(infos, topology::Cluster::from_sizes(ranks_per_node)).cores_per_node;
}

TEST(CoresOfNodes, OfRanksThatShareThemAreAtMostOneEach) {
  EXPECT_EQ(cores({4}, std::vector(4, on_cores(1, 2))), 2);
  EXPECT_EQ(cores({4}, std::vector(4, on_cores(1, 64))), 4);
}

// As Slurm and mpirun bind them.
TEST(CoresOfNodes, OfRanksThatAreBoundToTheirOwnAddUp) {
  EXPECT_EQ(cores({4}, {on_cores(1, 1), on_cores(2, 1), on_cores(3, 1), on_cores(4, 1)}), 4);
  EXPECT_EQ(cores({4}, {on_cores(1, 1), on_cores(1, 1), on_cores(2, 1), on_cores(2, 1)}), 2);
  EXPECT_EQ(cores({2}, {on_cores(1, 8), on_cores(2, 8)}), 2) << "a rank keeps one busy";
}

TEST(CoresOfNodes, AreThoseOfTheNodeWithTheFewest) {
  EXPECT_EQ(cores({2, 3}, {on_cores(1, 1), on_cores(2, 1), on_cores(3, 1), on_cores(3, 1), on_cores(3, 1)}),
            1);
}

TEST(CoresOfNodes, OfASetThatSomeMayUseLessOfAreTheFewest) {
  EXPECT_EQ(cores({4}, {on_cores(1, 4), on_cores(1, 2), on_cores(1, 4), on_cores(1, 4)}), 2);
}

}  // namespace
}  // namespace epccl::runtime
