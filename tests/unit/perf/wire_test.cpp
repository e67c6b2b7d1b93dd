#include "perf/src/wire.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace epccl::perf {
namespace {

/// Ranks numbered node by node.
std::vector<int> nodes_of(const std::vector<int>& ranks_per_node) {
  std::vector<int> node_of;
  for (size_t n = 0; n < ranks_per_node.size(); ++n) {
    node_of.insert(node_of.end(), static_cast<size_t>(ranks_per_node[n]), static_cast<int>(n));
  }
  return node_of;
}

TEST(BusiestLink, OfAUniformAlltoallIsLocalTimesRemoteRanks) {
  for (const int nodes : {1, 2, 4, 16}) {
    for (const int local : {1, 4, 8}) {
      const std::vector<int> node_of = nodes_of(std::vector<int>(static_cast<size_t>(nodes), local));
      const auto closed_form = static_cast<uint64_t>(local * local * (nodes - 1)) * 1024;
      EXPECT_EQ(busiest_link_bytes(uniform_counts(nodes * local, 256), 4, node_of), closed_form)
          << nodes << "x" << local;
    }
  }
}

TEST(BusiestLink, OfUnequalNodesIsAnyNodesEgressOrIngress) {
  EXPECT_EQ(busiest_link_bytes(uniform_counts(8, 10), 1, nodes_of({3, 5})), 150u);
  EXPECT_EQ(busiest_link_bytes(uniform_counts(8, 10), 1, nodes_of({1, 7})), 70u);
}

TEST(BusiestLink, IsTheIngressOfTheHotNodeWhereTrafficIsSkewed) {
  CountMatrix counts(4);  // two ranks a node: all send to rank 0
  for (int s = 0; s < 4; ++s) counts.at(s, 0) = 100;
  EXPECT_EQ(busiest_link_bytes(counts, 2, nodes_of({2, 2})), 400u);
  EXPECT_EQ(busiest_link_bytes(counts, 2, nodes_of({1, 1, 1, 1})), 600u);
}

TEST(BusiestLink, DoesNotNeedRanksOfANodeToBeConsecutive) {
  EXPECT_EQ(busiest_link_bytes(uniform_counts(4, 1), 1, {0, 1, 0, 1}), 4u);
}

TEST(BusiestLink, IsNothingWithinOneNode) {
  EXPECT_EQ(busiest_link_bytes(uniform_counts(8, 10), 4, nodes_of({8})), 0u);
}

TEST(IdealTime, IsThatOfThePublishedWireTimes) {
  // Known wire times in microseconds, measured to about 0.3 %.
  struct Known {
    int nodes, local;
    uint64_t bytes_per_pair;
    double rate, us;
  };
  for (const Known& k : {Known{2, 4, 16384, 1e9, 2199}, Known{2, 4, 1 << 20, 1e9, 140748},
                         Known{4, 8, 1024, 4e9, 413}, Known{4, 8, 16384, 4e9, 6600}}) {
    const std::vector<int> node_of = nodes_of(std::vector<int>(static_cast<size_t>(k.nodes), k.local));
    const uint64_t bytes =
        busiest_link_bytes(uniform_counts(k.nodes * k.local, k.bytes_per_pair), 1, node_of);
    EXPECT_NEAR(ideal_seconds(bytes, k.rate) * 1e6, k.us, 0.003 * k.us);
  }
}

TEST(IdealTime, IsTheClosedForm) {
  const uint64_t bytes = busiest_link_bytes(uniform_counts(32, 1024), 1, nodes_of({8, 8, 8, 8}));
  EXPECT_DOUBLE_EQ(ideal_seconds(bytes, 4e9), 8.0 * 8 * 3 * 1024 * 8 / (4e9 * 0.954));
}

}  // namespace
}  // namespace epccl::perf
