// Communicators with config.blocking = 0: what waits for other ranks goes on in the background, and is asked about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "blocked_call.hpp"
#include "ranks.hpp"

namespace nccl_programs {
namespace {

class Nonblocking : public testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, Nonblocking,
                         testing::Values(Job{As::threads, 4}, Job{As::processes, 4},
                                         Job{As::processes, 6, 3}),
                         testing::PrintToStringParamName());

bool is_last(const RankContext& context) {
  return context.rank == context.ranks - 1;
}

ncclResult_t begin_joining(const RankContext& context, ncclComm_t* comm) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return ncclCommInitRankConfig(comm, context.ranks, context.id, context.rank, &config);
}

/// However often it is asked.
void expect_in_progress(ncclComm_t comm) {
  for (int i = 0; i < 50; ++i) {
    ncclResult_t state = ncclSuccess;
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    ASSERT_EQ(state, ncclInProgress) << ncclGetLastError(comm);
    usleep(1000);
  }
}

/// Makes a call that is over when all ranks have made it: the last one does so when the others have asked of each of `shown`.
void begin_last_of_all(const RankContext& context, const std::vector<const ncclComm_t*>& shown,
                       const std::function<ncclResult_t()>& call) {
  if (is_last(context)) context.meet();
  EXPECT_EQ(call(), ncclInProgress) << ncclGetLastError(nullptr);
  if (is_last(context)) return;
  for (const ncclComm_t* comm : shown) expect_in_progress(*comm);
  context.meet();
}

/// first, first + step, ... below `end`.
std::vector<int> every(int step, int first, int end) {
  std::vector<int> ranks;
  for (int rank = first; rank < end; rank += step) ranks.push_back(rank);
  return ranks;
}

TEST_P(Nonblocking, IsInProgressUntilTheLastRankHasCalled) {
  run_ranks(GetParam(), [](const RankContext& context) {
    ncclComm_t comm = nullptr, part = nullptr, rest = nullptr;
    begin_last_of_all(context, {&comm}, [&] { return begin_joining(context, &comm); });
    ASSERT_EQ(settled(comm), ncclSuccess) << ncclGetLastError(comm);
    EXPECT_EQ(tell_all(comm, context.rank), every(1, 0, context.ranks));

    // The parent tells, and so does what is made of it.
    const int color = context.rank % 2;
    begin_last_of_all(context, {&comm, &part}, [&] { return ncclCommSplit(comm, color, 0, &part, nullptr); });
    ASSERT_EQ(settled(comm), ncclSuccess) << ncclGetLastError(comm);
    ASSERT_EQ(settled(part), ncclSuccess) << ncclGetLastError(part);
    EXPECT_EQ(tell_all(part, context.rank), every(2, color, context.ranks));

    int excluded = 0;
    if (context.rank == excluded) {
      context.meet();
    } else {
      begin_last_of_all(context, {&comm, &rest}, [&] {
        return ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT);
      });
      ASSERT_EQ(settled(rest), ncclSuccess) << ncclGetLastError(rest);
      EXPECT_EQ(tell_all(rest, context.rank), every(1, 1, context.ranks));
    }
    ASSERT_EQ(settled(comm), ncclSuccess) << ncclGetLastError(comm);
    EXPECT_EQ(tell_all(comm, context.rank), every(1, 0, context.ranks));
    for (ncclComm_t one : {rest, part, comm}) {
      if (one == nullptr) continue;
      EXPECT_EQ(ncclCommFinalize(one), ncclInProgress);
      EXPECT_EQ(settled(one), ncclSuccess);
      NCCL_OK(ncclCommDestroy(one));
    }
  });
}

// A program that polls before it ends the group (as RCCL's own tests do) comes to its end.
TEST_P(Nonblocking, IsNotInProgressInTheGroupThatWillMakeIt) {
  run_ranks(GetParam(), [](const RankContext& context) {
    ncclComm_t comm = nullptr;
    NCCL_OK(ncclGroupStart());
    EXPECT_EQ(begin_joining(context, &comm), ncclSuccess);
    ncclResult_t state = ncclInProgress;
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    ASSERT_EQ(settled(comm), ncclSuccess) << ncclGetLastError(comm);
    EXPECT_EQ(tell_all(comm, context.rank), every(1, 0, context.ranks));

    ncclComm_t part = nullptr;
    NCCL_OK(ncclGroupStart());
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &part, nullptr), ncclSuccess);
    NCCL_OK(ncclCommGetAsyncError(part, &state));
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    ASSERT_EQ(settled(comm), ncclSuccess) << ncclGetLastError(comm);
    ASSERT_EQ(settled(part), ncclSuccess) << ncclGetLastError(part);
    NCCL_OK(ncclCommDestroy(part));
    NCCL_OK(ncclCommDestroy(comm));
  });
}

// In the NULL stream; it is what does not go on in the background.
TEST_P(Nonblocking, ACallThatMovesDataIsOverWhenItReturnsAndOtherThreadsMayAskBefore) {
  run_ranks(GetParam(), [](const RankContext& context) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(begin_joining(context, &comm), ncclInProgress);
    ASSERT_EQ(settled(comm), ncclSuccess) << ncclGetLastError(comm);
    int sum = context.rank + 1;
    const auto add_up = [&] { return ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr); };
    if (is_last(context)) {
      context.meet();
      NCCL_OK(add_up());
    } else {
      BlockedCall blocked(add_up);
      ncclResult_t state = ncclInProgress;
      NCCL_OK(ncclCommGetAsyncError(comm, &state));
      EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comm);
      context.meet();  // only now does the last rank call
      EXPECT_EQ(blocked.result(), ncclSuccess) << blocked.text();
    }
    EXPECT_EQ(sum, context.ranks * (context.ranks + 1) / 2);
    NCCL_OK(ncclCommDestroy(comm));
  });
}

// Of two ranks the other one never comes.
TEST(NonblockingInit, ThatIsNotOverRefusesCallsAndCanBeAborted) {
  run_ranks({As::processes, 1}, [](const RankContext& context) {
    ncclComm_t comm = nullptr;
    int number = 1;
    EXPECT_EQ(begin_joining({0, 2, context.id}, &comm), ncclInProgress);
    expect_in_progress(comm);
    NCCL_FAILS(ncclAllReduce(&number, &number, 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidArgument,
               "poll ncclCommGetAsyncError() until it is not ncclInProgress");
    NCCL_FAILS(ncclCommCount(comm, &number), ncclInvalidArgument, "in progress");
    NCCL_FAILS(ncclCommDestroy(comm), ncclInvalidArgument, "in progress");
    NCCL_OK(ncclCommAbort(comm));
    ncclResult_t state = ncclSuccess;
    NCCL_FAILS(ncclCommGetAsyncError(comm, &state), ncclInvalidArgument, "was aborted");
  });
}

}  // namespace
}  // namespace nccl_programs
