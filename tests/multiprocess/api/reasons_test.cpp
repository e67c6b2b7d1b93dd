// What a program is told of a failure beside its text: epcclGetLastErrorReason().
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

epcclResult_t exchange(epcclComm_t comm, int ranks) {
  std::vector<int> in(static_cast<size_t>(ranks)), out(in.size());
  return epcclAlltoall(in.data(), out.data(), 1, epcclInt32, comm, nullptr);
}

/// Of ranks that make no call.
epcclResult_t wait_for_failure(epcclComm_t comm) {
  epcclResult_t result = epcclSuccess;
  for (int look = 0; look < 20'000 && result == epcclSuccess; ++look, usleep(1000))
    EXPECT_EQ(epcclCommGetAsyncError(comm, &result), epcclSuccess);
  return result;
}

TEST(Reason, IsNoneWhereNothingFailed) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    EXPECT_EQ(exchange(comm, context.ranks), epcclSuccess);
    EXPECT_EQ(epcclGetLastErrorReason(comm), epcclReasonNone);
    EXPECT_EQ(epcclGetLastErrorReason(nullptr), epcclReasonNone);
  });
}

// Of three ranks one waits for a short time, one for a long time, and one makes no call.
TEST(Reason, OfASilentRankIsATimeoutOnAllRanks) {
  for (const std::vector<int>& shape : {std::vector{3}, std::vector{1, 2}})
    run_ranks({shape, {}, {}}, [&shape](const RankContext& context) {
      Comm comm(context, nullptr, 60);
      ASSERT_EQ(exchange(comm, context.ranks), epcclSuccess) << epcclGetLastError(comm);
      context.meet();
      ASSERT_EQ(epcclCommSetTimeout(comm, context.rank == 0 ? 1 : 60), epcclSuccess);
      EXPECT_EQ(context.rank == 2 ? wait_for_failure(comm) : exchange(comm, context.ranks), epcclRemoteError);
      EXPECT_EQ(epcclGetLastErrorReason(comm), epcclReasonTimeout) << epcclGetLastError(comm);
      EXPECT_EQ(epcclGetLastErrorReason(nullptr), epcclReasonTimeout) << epcclGetLastError(comm);
      if (context.rank == 0 && shape.size() == 2) {
        EXPECT_NE(std::strstr(epcclGetLastError(comm), " (node 1): step "), nullptr)
            << epcclGetLastError(comm);
      }
      EXPECT_EQ(exchange(comm, context.ranks), epcclRemoteError);
      EXPECT_EQ(epcclGetLastErrorReason(comm), epcclReasonTimeout) << "the failure stays what it was";
      EXPECT_EQ(epcclAlltoall(nullptr, nullptr, 1, epcclInt32, comm, nullptr), epcclInvalidArgument);
      EXPECT_EQ(epcclGetLastErrorReason(comm), epcclReasonNone)
          << "as the text, of the last call that failed";
      context.meet();
    });
}

TEST(Reason, OfADeathIsNoTimeoutWhateverTheCommunicatorsName) {
  run_ranks({{3}, {}, {1}}, [](const RankContext& context) {
    epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
    config.timeout = 60;
    config.commName = "timeout: a name";
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRankConfig(&comm, context.ranks, context.id, context.rank, &config), epcclSuccess);
    ASSERT_EQ(exchange(comm, context.ranks), epcclSuccess) << epcclGetLastError(comm);
    context.meet();
    if (context.rank == 1) kill(getpid(), SIGKILL);
    EXPECT_EQ(context.rank == 2 ? wait_for_failure(comm) : exchange(comm, context.ranks), epcclRemoteError);
    EXPECT_EQ(epcclGetLastErrorReason(comm), epcclReasonNone) << epcclGetLastError(comm);
    (void)epcclCommAbort(comm);
  });
}

TEST(Reason, OfAJoinThatNotAllCameToIsATimeout) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
    config.timeout = 1.5;
    epcclComm_t comm = nullptr;
    if (context.rank != 2) {
      EXPECT_EQ(epcclCommInitRankConfig(&comm, context.ranks, context.id, context.rank, &config),
                epcclRemoteError);
      EXPECT_EQ(epcclGetLastErrorReason(nullptr), epcclReasonTimeout) << epcclGetLastError(nullptr);
    }
    context.meet();
  });
}

}  // namespace
}  // namespace epccl::tests
