// Who measures the link to whom, and when.
#include "perf/src/links/rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace epccl::perf::links {
namespace {

using Pair = std::pair<int, int>;

/// node_of[r] for nodes of these sizes.
std::vector<int> nodes_of(const std::vector<int>& sizes) {
  std::vector<int> node_of;
  for (size_t node = 0; node < sizes.size(); ++node)
    node_of.insert(node_of.end(), static_cast<size_t>(sizes[node]), static_cast<int>(node));
  return node_of;
}

/// All pairs of a group; none is there twice, and no rank twice in a round.
std::set<Pair> pairs_of(const Group& group) {
  std::set<Pair> all;
  for (const Round& round : group.rounds) {
    EXPECT_FALSE(round.empty());
    std::set<int> busy;
    for (const auto& [first, second] : round) {
      EXPECT_LT(first, second);
      EXPECT_TRUE(busy.insert(first).second && busy.insert(second).second) << first << " and " << second;
      EXPECT_TRUE(all.emplace(first, second).second) << first << " and " << second << " meet twice";
    }
  }
  return all;
}

template <typename Wanted>
std::set<Pair> pairs_where(const std::vector<int>& node_of, Wanted wanted) {
  std::set<Pair> all;
  for (int first = 0; first < static_cast<int>(node_of.size()); ++first)
    for (int second = first + 1; second < static_cast<int>(node_of.size()); ++second)
      if (wanted(first, second)) all.emplace(first, second);
  return all;
}

/// By the sizes of its nodes.
class Rounds : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  const std::vector<int> node_of_ = nodes_of(GetParam());
  bool same_node(int first, int second) const {
    return node_of_[static_cast<size_t>(first)] == node_of_[static_cast<size_t>(second)];
  }
  int local(int rank) const {
    return static_cast<int>(
        std::count(node_of_.begin(), node_of_.begin() + rank, node_of_[static_cast<size_t>(rank)]));
  }
  std::set<Pair> found(Pairs pairs) const {
    const std::vector<Group> groups = groups_of(pairs, node_of_);
    return groups.empty() ? std::set<Pair>{} : pairs_of(groups.front());
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, Rounds,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{5}, std::vector<int>{2, 2},
                                           std::vector<int>{3, 3, 3}, std::vector<int>{1, 4, 2},
                                           std::vector<int>(9, 1), std::vector<int>(8, 8)));

TEST_P(Rounds, OfRailsHaveAllPairsOfOnePosition) {
  EXPECT_EQ(found(Pairs::rails), pairs_where(node_of_, [&](int first, int second) {
              return !same_node(first, second) && local(first) == local(second);
            }));
}

TEST_P(Rounds, OfNodesHaveAllPairsOfOneNode) {
  EXPECT_EQ(found(Pairs::nodes),
            pairs_where(node_of_, [&](int first, int second) { return same_node(first, second); }));
}

TEST_P(Rounds, OfAllHaveAllPairsOfDifferentNodes) {
  EXPECT_EQ(found(Pairs::all),
            pairs_where(node_of_, [&](int first, int second) { return !same_node(first, second); }));
}

TEST(RoundsOfMany, AreAsFewAsThereCanBe) {
  EXPECT_EQ(groups_of(Pairs::rails, nodes_of(std::vector<int>(8, 4))).front().rounds.size(), 7U);
  EXPECT_EQ(groups_of(Pairs::rails, nodes_of(std::vector<int>(7, 4))).front().rounds.size(), 7U);
}

// Or a NIC that ranks of a node share would be shared by more of them in one round than in another.
TEST(RoundsOfAll, HaveAllRanksOfEqualNodesBusy) {
  const std::vector<Group> groups = groups_of(Pairs::all, nodes_of({3, 3, 3, 3}));
  for (const Round& round : groups.front().rounds) EXPECT_EQ(round.size(), 6U);
}

TEST(RoundsOfBoth, AreRailsAndThenNodesWithoutThoseOfNone) {
  const auto kinds = [](const std::vector<int>& sizes) {
    std::vector<Pairs> all;
    for (const Group& group : groups_of(Pairs::rails_and_nodes, nodes_of(sizes))) all.push_back(group.kind);
    return all;
  };
  EXPECT_EQ(kinds({2, 2}), (std::vector<Pairs>{Pairs::rails, Pairs::nodes}));
  EXPECT_EQ(kinds({4}), (std::vector<Pairs>{Pairs::nodes}));
  EXPECT_EQ(kinds({1, 1}), (std::vector<Pairs>{Pairs::rails}));
  EXPECT_TRUE(kinds({1}).empty());
}

}  // namespace
}  // namespace epccl::perf::links
