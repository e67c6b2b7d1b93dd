// Nodes, local positions and rails, for equal, unequal and interleaved nodes.
#include "topology/cluster.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace epccl::topology {
namespace {

using Ranks = std::vector<int>;

TEST(Cluster, UniformNumbersRanksNodeByNode) {
  const Cluster cluster = Cluster::uniform(3, 4);
  EXPECT_EQ(cluster.ranks(), 12);
  EXPECT_EQ(cluster.nodes(), 3);
  EXPECT_EQ(cluster.max_local_size(), 4);
  EXPECT_TRUE(cluster.uniform());
  EXPECT_EQ(cluster.node_of(7), 1);
  EXPECT_EQ(cluster.local_of(7), 3);
  EXPECT_EQ(cluster.rank_at(2, 1), 9);
  EXPECT_EQ(cluster.members(1), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(cluster.rail(0), (Ranks{0, 4, 8}));
  EXPECT_EQ(cluster.rail(3), (Ranks{3, 7, 11}));
  EXPECT_TRUE(cluster.same_node(4, 7));
  EXPECT_FALSE(cluster.same_node(3, 4));
}

TEST(Cluster, ThreeAndFive) {
  const Cluster cluster = Cluster::from_sizes({3, 5});
  EXPECT_EQ(cluster.ranks(), 8);
  EXPECT_FALSE(cluster.uniform());
  EXPECT_EQ(cluster.max_local_size(), 5);
  EXPECT_EQ(cluster.local_size(0), 3);
  EXPECT_EQ(cluster.members(1), (Ranks{3, 4, 5, 6, 7}));
  EXPECT_EQ(cluster.rail(2), (Ranks{2, 5}));
  EXPECT_EQ(cluster.rail(3), Ranks{6}) << "the smaller node has no fourth rank";
  EXPECT_EQ(cluster.rail(4), Ranks{7});
}

TEST(Cluster, OneAndSeven) {
  const Cluster cluster = Cluster::from_sizes({1, 7});
  EXPECT_EQ(cluster.rail(0), (Ranks{0, 1}));
  for (int local = 1; local < 7; ++local) EXPECT_EQ(cluster.rail(local), Ranks{local + 1});
}

TEST(Cluster, OneRank) {
  const Cluster cluster = Cluster::uniform(1, 1);
  EXPECT_EQ(cluster.ranks(), 1);
  EXPECT_TRUE(cluster.uniform());
  EXPECT_EQ(cluster.rail(0), Ranks{0});
}

TEST(Cluster, InterleavedHostIdsKeepRankOrderWithinANode) {
  const auto cluster = Cluster::from_host_ids({70, 50, 70, 60, 50, 70});
  ASSERT_TRUE(cluster.ok());
  EXPECT_EQ(cluster->nodes(), 3) << "numbered by first appearance";
  EXPECT_EQ(cluster->members(0), (Ranks{0, 2, 5}));
  EXPECT_EQ(cluster->members(1), (Ranks{1, 4}));
  EXPECT_EQ(cluster->members(2), Ranks{3});
  EXPECT_EQ(cluster->local_of(5), 2);
  EXPECT_EQ(cluster->rail(0), (Ranks{0, 1, 3}));
  EXPECT_EQ(cluster->rail(1), (Ranks{2, 4}));
  EXPECT_FALSE(cluster->uniform());
}

TEST(Cluster, NoRanksIsAnError) {
  const auto cluster = Cluster::from_host_ids({});
  ASSERT_FALSE(cluster.ok());
  EXPECT_EQ(cluster.status().code(), Code::invalid_argument);
}

TEST(Cluster, EveryRankIsOnOneRailAtItsOwnPlace) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> hosts(1 + random() % 64);
    for (auto& host : hosts) host = random() % 9;
    const auto cluster = Cluster::from_host_ids(hosts);
    ASSERT_TRUE(cluster.ok());
    std::set<int> seen;
    for (int local = 0; local < cluster->max_local_size(); ++local) {
      for (const int rank : cluster->rail(local)) {
        EXPECT_TRUE(seen.insert(rank).second);
        EXPECT_EQ(cluster->local_of(rank), local);
        EXPECT_EQ(cluster->rank_at(cluster->node_of(rank), local), rank);
      }
    }
    EXPECT_EQ(seen.size(), hosts.size());
    for (size_t a = 0; a < hosts.size(); ++a)
      for (size_t b = 0; b < hosts.size(); ++b)
        EXPECT_EQ(cluster->same_node(static_cast<int>(a), static_cast<int>(b)), hosts[a] == hosts[b]);
  }
}

}  // namespace
}  // namespace epccl::topology
