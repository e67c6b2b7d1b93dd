// How many cores the cost model takes a node's ranks to have, and how fast it takes their links to be.
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

double link_rate(const std::vector<double>& rates) {
  std::vector<RankInfo> infos(rates.size());
  for (size_t rank = 0; rank < rates.size(); ++rank) infos[rank].link_rate = rates[rank];
  const auto cluster = topology::Cluster::from_sizes(std::vector(rates.size(), 1));
  return cost_parameters(infos, cluster).link_rate;
}

TEST(LinkRate, IsThatOfTheSlowestThatIsKnown) {
  EXPECT_EQ(link_rate({25e9, 12.5e9, 50e9}), 12.5e9);
  EXPECT_EQ(link_rate({12.5e9, 25e9}), 12.5e9);
  EXPECT_EQ(link_rate({0, 25e9, 0}), 25e9) << "0: a rank does not know";
}

}  // namespace
}  // namespace epccl::runtime
