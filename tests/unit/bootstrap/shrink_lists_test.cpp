// Ranks that exclude different ranks in a shrink are found, and whoever waits for them is told.
#include "runtime/bootstrap/shrink_lists.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace epccl::runtime {
namespace {

std::vector<int> ranks_of(const std::vector<ShrinkLists::Verdict>& verdicts) {
  std::vector<int> ranks;
  for (const auto& verdict : verdicts) ranks.push_back(verdict.rank);
  std::ranges::sort(ranks);
  return ranks;
}

using Ranks = std::vector<int>;

TEST(ShrinkLists, EqualOnesAreFine) {
  ShrinkLists lists(4);
  for (const int rank : {0, 1, 3}) EXPECT_TRUE(lists.add(rank, {2}).empty());
}

TEST(ShrinkLists, TheTwoThatDifferAreNamed) {
  ShrinkLists lists(4);
  EXPECT_TRUE(lists.add(0, {3}).empty());
  const auto verdicts = lists.add(1, {2, 3});
  EXPECT_EQ(ranks_of(verdicts), (Ranks{0, 1}));
  for (const auto& verdict : verdicts) {
    EXPECT_EQ(verdict.text, "rank 0 excludes 3, rank 1 excludes 2, 3");
    EXPECT_EQ(verdict.number, 0U);
  }
}

TEST(ShrinkLists, WhoeverIsToMeetThemIsToldEarlyOrLate) {
  ShrinkLists lists(4);
  EXPECT_TRUE(lists.add(2, {3}).empty());
  EXPECT_TRUE(lists.add(0, {3}).empty());
  EXPECT_EQ(ranks_of(lists.add(1, {0, 3})), (Ranks{0, 1, 2}));  // 0 is not to meet 1, but 2
  ShrinkLists others(4);
  EXPECT_TRUE(others.add(0, {3}).empty());
  EXPECT_EQ(ranks_of(others.add(1, {2})), (Ranks{0, 1}));
  EXPECT_EQ(ranks_of(others.add(2, {3})), Ranks{2});
}

// Two have failed, and go on; the third says only now what it says in both.
TEST(ShrinkLists, WhoIsLateFailsWithoutThoseWhoHaveGoneOn) {
  ShrinkLists lists(4);
  EXPECT_TRUE(lists.add(0, {3}).empty());
  EXPECT_EQ(ranks_of(lists.add(1, {2, 3})), (Ranks{0, 1}));
  EXPECT_TRUE(lists.add(0, {3}).empty());
  EXPECT_TRUE(lists.add(1, {3}).empty());
  const auto late = lists.add(2, {3});
  EXPECT_EQ(ranks_of(late), Ranks{2});
  EXPECT_EQ(late.front().text, "rank 0 excludes 3, rank 1 excludes 2, 3");
  EXPECT_EQ(late.front().kept, (Ranks{0, 1, 2}));
  EXPECT_TRUE(lists.add(2, {3}).empty());
}

TEST(ShrinkLists, TheNextShrinkIsAnother) {
  const std::vector<Ranks> disagreeing{{3}, {2, 3}, {3}};
  for (Ranks order{0, 1, 2}; std::ranges::next_permutation(order).found;) {
    ShrinkLists lists(4);
    for (int round = 0; round < 3; ++round) {
      Ranks failed;
      for (const int rank : order)
        for (const int one : ranks_of(lists.add(rank, disagreeing[static_cast<size_t>(rank)])))
          failed.push_back(one);
      std::ranges::sort(failed);
      EXPECT_EQ(failed, (Ranks{0, 1, 2})) << "each once";
      for (const int rank : order) EXPECT_TRUE(lists.add(rank, {3}).empty());
    }
  }
}

// Each rank is left out once, and the others are not together in it.
TEST(ShrinkLists, WhoWasLeftOutCountsWithoutThatShrink) {
  ShrinkLists lists(4);
  for (const Ranks& order : {Ranks{3, 2, 1, 0}, Ranks{0, 1, 2, 3}})
    for (const int rank : order)
      for (int excluded = 0; excluded < 4; ++excluded) {
        if (excluded == rank) continue;
        EXPECT_TRUE(lists.add(rank, {excluded}).empty()) << rank << " " << excluded;
      }
}

// Two that have nothing to do with each other.
TEST(ShrinkLists, PartsThatExcludeEachOtherAreFine) {
  ShrinkLists lists(4);
  EXPECT_TRUE(lists.add(0, {2, 3}).empty());
  EXPECT_TRUE(lists.add(2, {0, 1}).empty());
  EXPECT_TRUE(lists.add(1, {2, 3}).empty());
  EXPECT_TRUE(lists.add(3, {0, 1}).empty());
}

}  // namespace
}  // namespace epccl::runtime
