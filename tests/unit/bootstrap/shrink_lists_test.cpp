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

// Each waits for the one that excludes it, so no two keep each other.
TEST(ShrinkLists, ThatMakeACircleFailWithTheLast) {
  for (Ranks order{0, 1, 2}; std::ranges::next_permutation(order).found;) {
    ShrinkLists lists(4);
    const std::vector<Ranks> excluded{{1}, {2}, {0}};
    for (int round = 0; round < 2; ++round) {
      EXPECT_TRUE(lists.add(order[0], excluded[static_cast<size_t>(order[0])]).empty());
      EXPECT_TRUE(lists.add(order[1], excluded[static_cast<size_t>(order[1])]).empty());
      const auto verdicts = lists.add(order[2], excluded[static_cast<size_t>(order[2])]);
      EXPECT_EQ(ranks_of(verdicts), (Ranks{0, 1, 2}));
      for (const auto& verdict : verdicts) {
        for (const char* each : {"rank 0 excludes 1", "rank 1 excludes 2", "rank 2 excludes 0"})
          EXPECT_NE(verdict.text.find(each), std::string::npos) << verdict.text;
        EXPECT_EQ(verdict.kept, (Ranks{0, 1, 2, 3}));
      }
      EXPECT_EQ(ranks_of(lists.add(3, {1})), Ranks{3}) << "whom they kept";
      for (const int rank : {0, 1, 2, 3}) EXPECT_TRUE(lists.add(rank, {}).empty());
    }
  }
}

// 0 and 2 keep each other, and differ. 1 waits for 2, which excludes it, and would wait for ever if 2 gave up now.
TEST(ShrinkLists, WhoWaitsForOneThatFailsAndWasKeptByAnotherFailsInAnyOrder) {
  const std::vector<Ranks> excluded{{3}, {0, 3}, {1, 3}};
  for (Ranks order{0, 1, 2}; std::ranges::next_permutation(order).found;) {
    ShrinkLists lists(4);
    Ranks failed;
    for (const int rank : order)
      for (const int one : ranks_of(lists.add(rank, excluded[static_cast<size_t>(rank)])))
        failed.push_back(one);
    std::ranges::sort(failed);
    EXPECT_EQ(failed, (Ranks{0, 1, 2})) << "each once";
    for (const int rank : order) EXPECT_TRUE(lists.add(rank, {3}).empty());
  }
}

TEST(ShrinkLists, WhoGaveUpWaitingIsInNoCircle) {
  ShrinkLists lists(3);
  EXPECT_TRUE(lists.add(0, {1}).empty());
  lists.over(0, 0);
  EXPECT_TRUE(lists.add(1, {2}).empty());
  EXPECT_TRUE(lists.add(2, {0}).empty());
  lists.over(2, 0);
  EXPECT_TRUE(lists.add(0, {2}).empty()) << "with rank 1";
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
