// Who came late, found by how long ranks waited.
#include "runtime/times/lateness.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace epccl::runtime {
namespace {

using Records = std::vector<std::vector<CallRecord>>;

/// As many calls on each rank, 1, 2, ...: record(rank, call).
template <typename Record>
Records records_of(size_t ranks, uint64_t calls, Record record) {
  Records all(ranks);
  for (size_t rank = 0; rank < ranks; ++rank)
    for (uint64_t call = 1; call <= calls; ++call) {
      all[rank].push_back(record(rank, call));
      all[rank].back().sequence = call;
    }
  return all;
}

constexpr double few = 1e-4;

TEST(Lateness, IsWhatTheMedianRankWaitsLonger) {
  const Records all = records_of(5, 10, [](size_t rank, uint64_t) {
    return rank == 3 ? CallRecord{.between = 1.5, .own = 0.25, .waited = 0.25}
                     : CallRecord{.between = 1, .own = 0.25, .waited = 0.75};
  });
  const Lateness found = compare_ranks(all, 0.05);
  EXPECT_EQ(found.calls, 10U);
  EXPECT_NEAR(found.seconds, 20, few);
  EXPECT_NEAR(found.lost, 5, few);
  EXPECT_NEAR(found.median_between, 10, few);
  EXPECT_NEAR(found.median_own, 2.5, few);
  for (size_t rank = 0; rank < 5; ++rank) {
    const RankLateness& its = found.ranks[rank];
    EXPECT_NEAR(its.late, rank == 3 ? 5 : 0, few);
    EXPECT_EQ(its.last_in, rank == 3 ? 10U : 0U);
    EXPECT_EQ(its.by, rank == 3 ? LateBy::between_calls : LateBy::nothing);
    EXPECT_NEAR(its.between + its.own + its.waited, 20, few);
  }
}

TEST(Lateness, OfTwoRanksTheOneThatWaitsLessIsIt) {
  const Records all = records_of(2, 4, [](size_t rank, uint64_t) {
    return rank == 0 ? CallRecord{.between = 1, .own = 1} : CallRecord{.between = 1, .waited = 1};
  });
  const Lateness found = compare_ranks(all, 0.05);
  EXPECT_NEAR(found.ranks[0].late, 4, few);
  EXPECT_EQ(found.ranks[0].by, LateBy::own_work);
  EXPECT_EQ(found.ranks[1].by, LateBy::nothing);
}

// Half of the ranks, say those of a slow node.
TEST(Lateness, CanBeOfHalfOfTheRanks) {
  const Records all = records_of(4, 4, [](size_t rank, uint64_t) {
    return rank < 2 ? CallRecord{.between = 2} : CallRecord{.between = 1, .waited = 1};
  });
  const Lateness found = compare_ranks(all, 0.05);
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(found.ranks[rank].by, rank < 2 ? LateBy::between_calls : LateBy::nothing);
}

TEST(Lateness, ThatNoWorkOfItsOwnExplainsIsBySomethingElse) {
  const Records all = records_of(3, 4, [](size_t rank, uint64_t) {
    return rank == 1 ? CallRecord{.between = 1, .waited_before = 1} : CallRecord{.between = 1, .waited = 1};
  });
  EXPECT_EQ(compare_ranks(all, 0.05).ranks[1].by, LateBy::others);
}

TEST(Lateness, BelowTheThresholdIsNone) {
  const Records all = records_of(3, 10, [](size_t rank, uint64_t) {
    return rank == 2 ? CallRecord{.between = 1} : CallRecord{.between = 0.9F, .waited = 0.1F};
  });
  EXPECT_EQ(compare_ranks(all, 0.101).ranks[2].by, LateBy::nothing);
  EXPECT_EQ(compare_ranks(all, 0.099).ranks[2].by, LateBy::between_calls);
}

// Each in its turn: over all calls nobody is, but time is lost.
TEST(Lateness, OfAnotherRankInEachCallIsLostTime) {
  const Records all = records_of(4, 8, [](size_t rank, uint64_t call) {
    return call % 4 == rank ? CallRecord{.between = 2} : CallRecord{.between = 1, .waited = 1};
  });
  const Lateness found = compare_ranks(all, 0.3);
  EXPECT_NEAR(found.lost, 8, few);
  for (const RankLateness& its : found.ranks) {
    EXPECT_EQ(its.by, LateBy::nothing);
    EXPECT_EQ(its.last_in, 2U);
  }
}

TEST(Lateness, IsFoundInCallsThatAllRanksHave) {
  Records all = records_of(3, 10, [](size_t rank, uint64_t) {
    return rank == 0 ? CallRecord{.between = 1} : CallRecord{.waited = 1};
  });
  all[0].erase(all[0].begin(), all[0].begin() + 2);  // its ring had no room for them
  all[1].erase(all[1].begin() + 5);                  // of this it could not find the times
  all[2].pop_back();
  const Lateness found = compare_ranks(all, 0.05);
  EXPECT_EQ(found.calls, 6U);
  EXPECT_NEAR(found.ranks[0].late, 6, few);
  EXPECT_NEAR(found.seconds, 6, few) << "of these calls";
}

TEST(Lateness, OfNoCallsIsNone) {
  Records all = records_of(3, 0, [](size_t, uint64_t) { return CallRecord{}; });
  EXPECT_EQ(compare_ranks(all, 0).calls, 0U);
  all[0].push_back({.sequence = 1, .between = 1});
  all[1].push_back({.sequence = 2, .waited = 1});
  const Lateness found = compare_ranks(all, 0);
  EXPECT_EQ(found.calls, 0U);
  EXPECT_EQ(found.ranks.size(), 3U);
  for (const RankLateness& its : found.ranks) EXPECT_EQ(its.by, LateBy::nothing);
}

TEST(Lateness, OfRanksThatAreAlikeIsNoneWhateverTheThreshold) {
  const Records all =
      records_of(3, 5, [](size_t, uint64_t) { return CallRecord{.between = 1, .waited = 1}; });
  for (const RankLateness& its : compare_ranks(all, 0).ranks) EXPECT_EQ(its.by, LateBy::nothing);
}

}  // namespace
}  // namespace epccl::runtime
