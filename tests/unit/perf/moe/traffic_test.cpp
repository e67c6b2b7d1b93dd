#include "perf/src/moe/traffic.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "perf/src/moe/count_file.hpp"

namespace epccl::perf::moe {
namespace {

constexpr epcclEpStrategy_t flat = EPCCL_EP_STRATEGY_FLAT, gather = EPCCL_EP_STRATEGY_GATHER,
                            dedup = EPCCL_EP_STRATEGY_DEDUP;

/// Nodes of ranks 0 1 | 2 3 | 4; ten experts, two a rank.
Placement five_ranks() {
  return Placement({0, 0, 1, 1, 2}, 10);
}

/// Rank 0 has three tokens, the others none.
std::vector<TopkTable> small_tables() {
  std::vector<TopkTable> tables(5, {0, 3, {}});
  tables[0] = {3,
               3,
               {4, 5, 7,      // twice on rank 2, once on rank 3: both of node 1
                0, 3, 9,      // ranks 0, 1, 4
                -1, -1, 2}};  // rank 1
  return tables;
}

TEST(Placement, PutsExpertsInEqualBlocksAndRelaysOnTheRail) {
  const Placement placement = five_ranks();
  EXPECT_EQ(placement.nodes(), 3);
  EXPECT_EQ(placement.owner(0), 0);
  EXPECT_EQ(placement.owner(5), 2);
  EXPECT_EQ(placement.owner(9), 4);
  EXPECT_EQ(Placement({0, 0, 0}, 7).owner(4), 1);
  EXPECT_EQ(placement.relay(0, 1), 2);
  EXPECT_EQ(placement.relay(1, 1), 3);
  EXPECT_EQ(placement.relay(3, 2), 4);
  EXPECT_EQ(placement.relay(3, 1), 3);
}

TEST(TokenCopies, CountExpertsOrRanks) {
  const CountMatrix experts = token_copies(small_tables(), five_ranks(), Copies::expert);
  const CountMatrix ranks = token_copies(small_tables(), five_ranks(), Copies::rank);
  EXPECT_EQ(text_of(experts), "1 2 2 1 1\n0 0 0 0 0\n0 0 0 0 0\n0 0 0 0 0\n0 0 0 0 0\n");
  EXPECT_EQ(text_of(ranks), "1 2 1 1 1\n0 0 0 0 0\n0 0 0 0 0\n0 0 0 0 0\n0 0 0 0 0\n");
}

TEST(TokenCopies, AreWhatAlltoallvReads) {
  const CountMatrix ranks = token_copies(small_tables(), five_ranks(), Copies::rank);
  const auto read = parse_counts(text_of(ranks), "matrix", 5);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, ranks);
}

TEST(NetworkRows, AreOneForEachRankNodeOrToken) {
  const auto rows = [](epcclEpStrategy_t strategy) {
    const CountMatrix matrix = network_rows(small_tables(), five_ranks(), strategy);
    std::vector<uint64_t> sent;
    for (int rank = 0; rank < 5; ++rank) sent.push_back(matrix.at(0, rank));
    return sent;
  };
  EXPECT_EQ(rows(flat), (std::vector<uint64_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(rows(dedup), (std::vector<uint64_t>{0, 0, 1, 0, 1}));
  EXPECT_EQ(rows(gather), (std::vector<uint64_t>{0, 0, 3, 0, 3}));
}

TEST(LinkRows, CountWhoHandsOnToWhom) {
  const auto check = [](epcclEpStrategy_t strategy, Layout layout, uint64_t local, uint64_t node,
                        uint64_t network) {
    const LinkRows rows = link_rows(small_tables(), five_ranks(), strategy, layout);
    EXPECT_EQ(rows.local, local);
    EXPECT_EQ(rows.node, node);
    EXPECT_EQ(rows.network, network);
  };
  check(flat, Layout::flat, 4, 2, 3);         // to itself, and to whom it came straight; rank 1 twice
  check(dedup, Layout::rank_major, 3, 3, 2);  // rank 2 hands on to rank 3
  check(dedup, Layout::expert_major, 4, 3, 2);
  check(gather, Layout::flat, 3, 3, 6);
}

/// The mean number of `parts` equal parts of the experts that `topk` different ones touch.
double expected_parts(double experts, double parts, int topk) {
  double missed = 1;
  for (int k = 0; k < topk; ++k) missed *= (experts - experts / parts - k) / (experts - k);
  return parts * (1 - missed);
}

TEST(NetworkRows, AreTheClosedFormForUniformRouting) {
  constexpr int nodes = 4, ranks = 16;
  constexpr uint32_t tokens = 2000;
  std::vector<int> node_of(ranks);
  for (int rank = 0; rank < ranks; ++rank) node_of[static_cast<size_t>(rank)] = rank / (ranks / nodes);
  const Placement placement(node_of, 256);
  const auto tables = all_tables(*make_routing({}, 256, 8, 1), ranks, tokens);
  const auto mean = [&](epcclEpStrategy_t strategy) {
    return static_cast<double>(link_rows(tables, placement, strategy, Layout::flat).network) /
           (ranks * tokens);
  };
  const double remote_nodes = expected_parts(256, nodes, 8) * (nodes - 1) / nodes;
  const double remote_ranks = expected_parts(256, ranks, 8) * (nodes - 1) / nodes;
  EXPECT_NEAR(mean(dedup), remote_nodes, 0.005 * remote_nodes);
  EXPECT_NEAR(mean(flat), remote_ranks, 0.005 * remote_ranks);
  EXPECT_EQ(mean(gather), nodes - 1);
}

TEST(Imbalance, IsTheMostOverTheMean) {
  CountMatrix copies(2);
  EXPECT_EQ(imbalance(copies), 1);
  copies.at(0, 0) = 3;
  copies.at(1, 0) = 3;
  copies.at(1, 1) = 2;
  EXPECT_DOUBLE_EQ(imbalance(copies), 1.5);
}

TEST(TotalEntries, DoNotCountWhatIsUnused) {
  EXPECT_EQ(total_entries(small_tables()), 7u);
}

}  // namespace
}  // namespace epccl::perf::moe
