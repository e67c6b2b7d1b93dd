#include "runtime/executor/staging_choice.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace epccl::runtime {
namespace {

using Way = StagingChoice::Way;

constexpr uint64_t bytes = 1 << 20;
constexpr unsigned block = StagingChoice::block, first_trial = 2 * block,
                   period = block * StagingChoice::period;

/// Of so many calls, how many went directly, where one of either way takes as long as is said.
unsigned direct_calls(StagingChoice& choice, unsigned calls, double staged, double direct,
                      uint64_t size = bytes, const char* text = "alltoall count 1 int8") {
  unsigned count = 0;
  for (unsigned i = 0; i < calls; ++i) {
    const bool is_direct = choice.choose(StagingChoice::kind(text, size)) == Way::direct;
    choice.took(is_direct ? direct : staged, size);
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
    const bool direct = choice.choose(StagingChoice::kind("alltoall", bytes)) == Way::direct,
               counts = call % block >= block - StagingChoice::counted;
    choice.took(direct == counts ? 1 : 2, bytes);  // staged: fast at first
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

TEST(StagingChoice, IsMadeForEachOperationByItself) {
  StagingChoice choice;
  direct_calls(choice, first_trial, 2, 1, bytes, "allgather count 8 float32");
  EXPECT_EQ(direct_calls(choice, block, 1, 2, bytes, "alltoall count 8 float32"), 0U) << "no trial yet";
  EXPECT_EQ(direct_calls(choice, 1, 2, 1, bytes, "allgather count 9 int8"), 1U)
      << "of any count and datatype";
}

// Sizes of a kind are up to a factor of two apart.
TEST(StagingChoice, ComparesWhatAByteTakes) {
  StagingChoice choice;
  const auto call = [&](uint64_t size, double seconds) {
    const Way way = choice.choose(StagingChoice::kind("alltoall", size));
    choice.took(seconds, size);
    return way;
  };
  for (unsigned i = 0; i < block; ++i) EXPECT_EQ(call(bytes, 1), Way::staged);
  for (unsigned i = 0; i < block; ++i) EXPECT_EQ(call(2 * bytes - 1, 1.6), Way::direct);
  EXPECT_EQ(call(bytes, 1), Way::direct) << "1.6 for twice as much is less";
}

TEST(StagingChoice, TellsWhatTheFirstTrialFoundAndEachChange) {
  StagingChoice choice;
  const auto found = [&](double staged, double direct) {
    std::vector<std::pair<unsigned, Way>> all;
    for (unsigned i = 0; i < period; ++i) {
      const bool is_direct = choice.choose(StagingChoice::kind("alltoall", bytes)) == Way::direct;
      if (const auto now = choice.took(is_direct ? direct : staged, bytes)) {
        all.emplace_back(i, now->way);
        EXPECT_DOUBLE_EQ(now->staged * bytes, staged);
        EXPECT_DOUBLE_EQ(now->direct * bytes, direct);
      }
    }
    return all;
  };
  using Found = std::vector<std::pair<unsigned, Way>>;
  EXPECT_EQ(found(1, 2), (Found{{first_trial - 1, Way::staged}}));
  EXPECT_EQ(found(1, 2), Found{}) << "as before";
  EXPECT_EQ(found(1, 0.5), (Found{{block - 1, Way::direct}}));
}

TEST(StagingChoice, OperationsAreOfDifferentKinds) {
  std::set<uint16_t> kinds;
  for (const char* operation : {"alltoall", "alltoallv", "allgather", "reduce_scatter", "allreduce",
                                "broadcast", "reduce", "gather", "scatter", "ep"})
    for (const uint64_t size : {uint64_t{0}, bytes, uint64_t{1} << 63}) {
      const uint16_t kind = StagingChoice::kind(std::string(operation) + " count 8", size);
      EXPECT_NE(kind, 0);
      EXPECT_TRUE(kinds.insert(kind).second) << operation << " of " << size << " bytes";
    }
}

TEST(StagingChoice, IsTheSettingsWhereThatMakesOne) {
  StagingChoice always(StagingUse::always), never(StagingUse::never);
  EXPECT_EQ(direct_calls(always, 10 * period, 2, 1), 0U);
  EXPECT_EQ(direct_calls(never, 10 * period, 1, 2), 10 * period);
}

}  // namespace
}  // namespace epccl::runtime
