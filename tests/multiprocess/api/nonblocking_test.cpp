// Communicators with config.blocking = 0.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "exchange.hpp"
#include "polling.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

epcclComm_t join(const RankContext& context) {
  epcclConfig_t config = nonblocking_config();
  epcclComm_t comm = nullptr;
  EXPECT_EQ(epcclCommInitRankConfig(&comm, context.ranks, context.id, context.rank, &config), epcclInProgress)
      << epcclGetLastError(nullptr);
  EXPECT_NE(comm, nullptr);
  return comm;
}

void expect_works(epcclComm_t comm, int rank, int ranks) {
  const Place place = place_in(comm);
  EXPECT_EQ(place.rank, rank);
  EXPECT_EQ(place.ranks, ranks);
  Exchange exchange(rank, ranks, 2000);
  // Either is right for a program that polls.
  const epcclResult_t result = exchange.start(comm);
  EXPECT_TRUE(result == epcclSuccess || result == epcclInProgress) << epcclGetLastError(comm);
  EXPECT_EQ(settled(comm), epcclSuccess);
  EXPECT_EQ(exchange.wrong(), 0U);
}

class Nonblocking : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Nonblocking,
                         testing::Values(std::vector{1}, std::vector{3}, std::vector{2, 2}, std::vector{8}));

TEST_P(Nonblocking, CommunicatorsAreMadeSplitShrunkAndFinalizedByPolling) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    epcclComm_t comm = join(context);
    ASSERT_EQ(settled(comm), epcclSuccess) << epcclGetLastError(comm);
    expect_works(comm, context.rank, context.ranks);

    epcclComm_t half = nullptr;
    EXPECT_EQ(epcclCommSplit(comm, context.rank % 2, -context.rank, &half, nullptr), epcclInProgress);
    // The parent tells, as NCCL's does, and so does the new one.
    ASSERT_EQ(settled(comm), epcclSuccess) << epcclGetLastError(comm);
    ASSERT_EQ(settled(half), epcclSuccess) << epcclGetLastError(half);
    const int size = (context.ranks + 1 - context.rank % 2) / 2;
    expect_works(half, size - 1 - context.rank / 2, size);

    if (context.rank > 0) {
      int excluded = 0;
      epcclComm_t rest = nullptr;
      EXPECT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclInProgress);
      ASSERT_EQ(settled(comm), epcclSuccess) << epcclGetLastError(comm);
      expect_works(rest, context.rank - 1, context.ranks - 1);
      EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
    }
    for (epcclComm_t each : {half, comm}) {
      EXPECT_EQ(epcclCommFinalize(each), epcclInProgress);
      EXPECT_EQ(settled(each), epcclSuccess);
      EXPECT_EQ(epcclCommDestroy(each), epcclSuccess);
    }
  });
}

TEST(NonblockingSplit, WithoutColorLeavesNull) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    epcclComm_t comm = join(context);
    ASSERT_EQ(settled(comm), epcclSuccess);
    auto* part = reinterpret_cast<epcclComm_t>(1);
    EXPECT_EQ(epcclCommSplit(comm, context.rank == 0 ? 0 : EPCCL_SPLIT_NOCOLOR, 0, &part, nullptr),
              epcclInProgress);
    ASSERT_EQ(settled(comm), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(part == nullptr, context.rank == 1);
    if (part != nullptr) {
      EXPECT_EQ(epcclCommDestroy(part), epcclSuccess);
    }
    EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

// Two ranks, and only one comes: everything there is to call on it, then abort.
TEST(NonblockingInit, ThatIsNotDoneRefusesCallsAndCanBeAborted) {
  run_ranks({{1}, long_timeout, {}}, [](const RankContext& context) {
    epcclComm_t comm = join({0, 2, context.id}), other = nullptr;
    epcclResult_t state = epcclSuccess;
    EXPECT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
    EXPECT_EQ(state, epcclInProgress);
    EXPECT_EQ(epcclCommQuery(comm), epcclInProgress);
    int value = 0, list[] = {1};
    void* registration = nullptr;
    EXPECT_EQ(Exchange(0, 2, 1).start(comm), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "in progress"), nullptr) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclSend(&value, 1, epcclInt32, 0, comm, nullptr), epcclInvalidArgument);
    EXPECT_EQ(epcclCommCount(comm, &value), epcclInvalidArgument);
    EXPECT_EQ(epcclCommUserRank(comm, &value), epcclInvalidArgument);
    EXPECT_EQ(epcclCommDevice(comm, &value), epcclInvalidArgument);
    EXPECT_EQ(epcclCommSplit(comm, 0, 0, &other, nullptr), epcclInvalidArgument);
    EXPECT_EQ(epcclCommShrink(comm, list, 1, &other, nullptr, EPCCL_SHRINK_ABORT), epcclInvalidArgument);
    EXPECT_EQ(epcclCommRegister(comm, &value, sizeof value, &registration), epcclInvalidArgument);
    EXPECT_EQ(epcclCommFinalize(comm), epcclInvalidArgument);
    EXPECT_EQ(epcclCommRevoke(comm, EPCCL_REVOKE_DEFAULT), epcclInvalidArgument);
    EXPECT_EQ(epcclCommDestroy(comm), epcclInvalidArgument);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    EXPECT_EQ(epcclCommQuery(comm), epcclInvalidArgument);
    EXPECT_EQ(epcclCommGetAsyncError(comm, &state), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "was aborted"), nullptr) << epcclGetLastError(nullptr);
  });
}

TEST(NonblockingInit, ThatFailsTellsSoAndIsFreed) {
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    // They disagree on the number of ranks.
    epcclComm_t comm = join({context.rank, 2 + context.rank, context.id});
    const epcclResult_t state = settled(comm);
    EXPECT_NE(state, epcclSuccess);
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "ranks disagree on their number"), nullptr)
        << epcclGetLastError(comm);
    EXPECT_EQ(Exchange(0, 2, 1).start(comm), state);  // and it stays so
    EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
    EXPECT_EQ(epcclCommDestroy(comm), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "was destroyed"), nullptr)
        << epcclGetLastError(nullptr);
  });
}

// One thread is all ranks, and goes on at once.
TEST(NonblockingGroup, MakesAllRanksOfAThread) {
  run_ranks({{1}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    constexpr int ranks = 4;
    std::vector<epcclComm_t> comms(ranks);
    epcclConfig_t config = nonblocking_config();
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(epcclCommInitRankConfig(&comms[static_cast<size_t>(rank)], ranks, context.id, rank, &config),
                epcclSuccess);
    EXPECT_EQ(epcclGroupEnd(), epcclInProgress);
    for (epcclComm_t comm : comms) ASSERT_EQ(settled(comm), epcclSuccess);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(place_in(comms[static_cast<size_t>(rank)]).rank, rank);
    for (epcclComm_t comm : comms) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST(NonblockingGroup, TellsOfACallThatFailsThoughWhatElseItBeganIsInProgress) {
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    int numbers[2] = {1, 2};
    if (context.rank == 1) {
      static_cast<void>(epcclSend(numbers, 2, epcclInt32, 0, comm, nullptr));
      return context.meet();
    }
    epcclUniqueId id{};
    ASSERT_EQ(epcclGetUniqueId(&id), epcclSuccess);
    epcclConfig_t config = nonblocking_config();
    epcclComm_t made = nullptr;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(epcclCommInitRankConfig(&made, 1, id, 0, &config), epcclSuccess);
    EXPECT_EQ(epcclRecv(numbers, 1, epcclInt32, 1, comm, nullptr), epcclSuccess);
    EXPECT_EQ(epcclGroupEnd(), epcclInvalidUsage);
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "sent 8 bytes where 4 are expected"), nullptr)
        << epcclGetLastError(comm);
    EXPECT_EQ(settled(made), epcclSuccess);
    EXPECT_EQ(epcclCommDestroy(made), epcclSuccess);
    context.meet();
  });
}

// Another rank never splits: the parent is in progress until it is aborted.
TEST(NonblockingSplit, CanBeAbortedThroughTheParentAndTheChild) {
  run_ranks({{2}, long_timeout, {}}, [](const RankContext& context) {
    epcclComm_t comm = join(context), child = nullptr;
    ASSERT_EQ(settled(comm), epcclSuccess);
    context.meet();
    if (context.rank == 1) {
      epcclResult_t state = epcclSuccess;
      while (state == epcclSuccess) ASSERT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
      EXPECT_EQ(state, epcclRemoteError);
      EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
      return;
    }
    EXPECT_EQ(epcclCommSplit(comm, 0, 0, &child, nullptr), epcclInProgress);
    epcclResult_t state = epcclSuccess;
    EXPECT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
    EXPECT_EQ(state, epcclInProgress);
    EXPECT_EQ(Exchange(0, 2, 1).start(comm), epcclInvalidArgument);
    EXPECT_EQ(epcclCommAbort(child), epcclSuccess);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

TEST(NonblockingShrink, AfterAKill) {
  run_ranks({{4}, {{"EPCCL_TIMEOUT", "20"}}, {0}}, [](const RankContext& context) {
    epcclComm_t comm = join(context);
    ASSERT_EQ(settled(comm), epcclSuccess);
    ASSERT_EQ(Exchange(context.rank, 4, 10).start(comm), epcclSuccess);
    context.meet();
    if (context.rank == 0) kill(getpid(), SIGKILL);
    epcclResult_t state = epcclSuccess;
    while (state == epcclSuccess) ASSERT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
    EXPECT_EQ(state, epcclRemoteError);
    int dead = 0;
    epcclComm_t rest = nullptr;
    ASSERT_EQ(epcclCommShrink(comm, &dead, 1, &rest, nullptr, EPCCL_SHRINK_ABORT), epcclInProgress)
        << epcclGetLastError(comm);
    ASSERT_EQ(settled(rest), epcclSuccess) << epcclGetLastError(rest);
    expect_works(rest, context.rank - 1, 3);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
