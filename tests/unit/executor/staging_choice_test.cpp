#include "runtime/executor/staging_choice.hpp"

#include <gtest/gtest.h>

namespace epccl::runtime {
namespace {

using Way = StagingChoice::Way;

constexpr uint64_t bytes = 1 << 20;
constexpr unsigned block = StagingChoice::block, first_trial = 2 * block,
                   period = block * StagingChoice::period;

/// Of so many calls, how many went directly, where one of either way takes as long as is said.
unsigned direct_calls(StagingChoice& choice, unsigned calls, double staged, double direct,
                      uint64_t size = bytes) {
  unsigned count = 0;
  for (unsigned i = 0; i < calls; ++i) {
    const bool is_direct = choice.choose(StagingChoice::kind(size)) == Way::direct;
    choice.took(is_direct ? direct : staged);
    count += is_direct ? 1 : 0;
  }
  return count;
}

TEST(StagingChoice, TriesBothWaysInTheFirstCalls) {
  StagingChoice choice;
  EXPECT_EQ(direct_calls(choice, block, 1, 1), 0U);
  EXPECT_EQ(direct_calls(choice, block, 1, 1), block);
}

TEST(StagingChoice, GoesTheFasterWay) {
  StagingChoice one, other;
  direct_calls(one, first_trial, 2, 1);
  EXPECT_EQ(direct_calls(one, 100, 2, 1), 100U);
  direct_calls(other, first_trial, 1, 2);
  EXPECT_EQ(direct_calls(other, 100, 1, 2), 0U);
}

TEST(StagingChoice, StagesWhereBothTakeNearlyAsLong) {
  StagingChoice choice;
  direct_calls(choice, first_trial, 1, 0.95);
  EXPECT_EQ(direct_calls(choice, 100, 1, 0.95), 0U);
}

// Caches hold what the calls before have left there.
TEST(StagingChoice, DoesNotCountCallsAfterAChange) {
  StagingChoice choice;
  for (unsigned call = 0; call < first_trial; ++call) {
    const bool direct = choice.choose(StagingChoice::kind(bytes)) == Way::direct,
               counts = call % block >= block - StagingChoice::counted;
    choice.took(direct == counts ? 1 : 2);  // staged: fast at first
  }
  EXPECT_EQ(direct_calls(choice, 100, 2, 1), 100U);
}

TEST(StagingChoice, TriesTheOtherWayNowAndThen) {
  StagingChoice choice;
  EXPECT_EQ(direct_calls(choice, period, 1, 2), block);  // the first trial
  EXPECT_EQ(direct_calls(choice, 10 * period, 1, 2), 10 * block);
}

TEST(StagingChoice, ChangesWhenTheMachineDoes) {
  StagingChoice choice;
  direct_calls(choice, period, 1, 2);
  direct_calls(choice, block, 1, 0.5);
  EXPECT_EQ(direct_calls(choice, 100, 1, 0.5), 100U);
}

TEST(StagingChoice, IsMadeForEachSizeByItself) {
  StagingChoice choice;
  direct_calls(choice, first_trial, 2, 1);
  direct_calls(choice, first_trial, 1, 2, 16 * bytes);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(direct_calls(choice, 1, 1, 2, 16 * bytes), 0U);
    EXPECT_EQ(direct_calls(choice, 1, 2, 1), 1U);
  }
}

}  // namespace
}  // namespace epccl::runtime
