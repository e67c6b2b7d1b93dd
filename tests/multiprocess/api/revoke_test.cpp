// epcclCommRevoke: work in flight ends, the communicator stays to be split, shrunk or destroyed.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "asleep.hpp"
#include "exchange.hpp"
#include "polling.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

class Revoke : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Revoke, testing::Values(std::vector{3}, std::vector{2, 2}));

// The last rank does not come to the collective; the first one's other thread revokes, and everybody hears of it.
TEST_P(Revoke, EndsWorkInFlightAndLeavesACommunicatorToSplitAndShrink) {
  run_ranks({GetParam(), long_timeout, {}}, [](const RankContext& context) {
    const Comm comm(context);
    if (context.rank < context.ranks - 1) {
      std::thread revoker;
      if (context.rank == 0)
        revoker = std::thread([&comm, caller = gettid()] {
          wait_until_asleep(caller);
          EXPECT_EQ(epcclCommRevoke(comm, EPCCL_REVOKE_DEFAULT), epcclSuccess);
        });
      EXPECT_EQ(Exchange(context.rank, context.ranks, 10).start(comm), epcclRemoteError);
      EXPECT_NE(std::strstr(epcclGetLastError(comm), "revoked"), nullptr) << epcclGetLastError(comm);
      if (revoker.joinable()) revoker.join();
    }
    if (context.rank != 0) {
      EXPECT_EQ(epcclCommRevoke(comm, EPCCL_REVOKE_DEFAULT), epcclSuccess);
    }
    EXPECT_EQ(settled(comm), epcclSuccess);
    EXPECT_EQ(Exchange(context.rank, context.ranks, 10).start(comm), epcclInvalidUsage);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "revoked"), nullptr) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclCommFinalize(comm), epcclInvalidArgument);
    EXPECT_EQ(epcclCommRevoke(comm, EPCCL_REVOKE_DEFAULT), epcclInvalidArgument);
    int ranks = 0;
    EXPECT_EQ(epcclCommCount(comm, &ranks), epcclSuccess);

    for (int time = 0; time < 2; ++time) {
      epcclComm_t reversed = nullptr;
      ASSERT_EQ(epcclCommSplit(comm, 1, -context.rank, &reversed, nullptr), epcclSuccess)
          << epcclGetLastError(nullptr);
      expect_works(reversed, context.ranks - 1 - context.rank, context.ranks);
      EXPECT_EQ(epcclCommDestroy(reversed), epcclSuccess);
    }
    if (context.rank == 0) return;
    int excluded = 0;
    epcclComm_t rest = nullptr;
    ASSERT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclSuccess)
        << epcclGetLastError(nullptr);
    expect_works(rest, context.rank - 1, context.ranks - 1);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
  });
}

// A shrink in the default way does, once survivors have revoked: also without the process that made the id.
TEST_P(Revoke, AfterAKillLetsTheSurvivorsShrink) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "20"}}, {0}}, [](const RankContext& context) {
    const Comm comm(context);
    ASSERT_EQ(Exchange(context.rank, context.ranks, 10).start(comm), epcclSuccess);
    context.meet();
    if (context.rank == 0) kill(getpid(), SIGKILL);
    while (Exchange(context.rank, context.ranks, 10).start(comm) == epcclSuccess) continue;
    EXPECT_EQ(epcclCommRevoke(comm, EPCCL_REVOKE_DEFAULT), epcclSuccess);
    int dead = 0;
    epcclComm_t rest = nullptr;
    ASSERT_EQ(epcclCommShrink(comm, &dead, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclSuccess)
        << epcclGetLastError(nullptr);
    expect_works(rest, context.rank - 1, context.ranks - 1);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
  });
}

/// Two splits, or shrinks without rank 0, of a revoked communicator in one group. Each is told from the other by its order of ranks.
void divide_twice(const RankContext& context, bool shrinks) {
  Comm comm(context);
  ASSERT_EQ(epcclCommRevoke(comm, EPCCL_REVOKE_DEFAULT), epcclSuccess);
  if (shrinks && context.rank == 0) return;
  std::array<epcclComm_t, 2> parts{};
  int excluded = 0;
  ASSERT_EQ(epcclGroupStart(), epcclSuccess);
  for (int i = 0; i < 2; ++i) {
    epcclComm_t* const part = &parts[static_cast<size_t>(i)];
    ASSERT_EQ(shrinks ? epcclCommShrink(comm, &excluded, 1, part, nullptr, EPCCL_SHRINK_ABORT)
                      : epcclCommSplit(comm, 0, i == 0 ? context.rank : -context.rank, part, nullptr),
              epcclSuccess);
  }
  ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
  int rank = -1;
  EXPECT_EQ(epcclCommUserRank(parts[1], &rank), epcclSuccess);
  EXPECT_EQ(rank, shrinks ? context.rank - 1 : context.ranks - 1 - context.rank);
  for (size_t i = 0; i < 2; ++i) {
    const int number = static_cast<int>(i) + 1;
    int largest = 0;
    EXPECT_EQ(epcclAllReduce(&number, &largest, 1, epcclInt32, epcclMax, parts[i], nullptr), epcclSuccess);
    EXPECT_EQ(largest, number);
    EXPECT_EQ(epcclCommDestroy(parts[i]), epcclSuccess);
  }
}

// Members count how often they met: in the order of the calls, though the group's jobs run side by side.
TEST_P(Revoke, TwoSplitsOrShrinksInOneGroupAreNotTakenForEachOther) {
  for (int round = 0; round < 10; ++round)
    for (const bool shrinks : {false, true})
      run_ranks({GetParam(), {}, {}},
                [shrinks](const RankContext& context) { divide_twice(context, shrinks); });
}

// Rank 1 does not come to the shrink; another thread of rank 0, which waits for it there, revokes.
TEST(RevokeOf, TheParentEndsABlockedShrink) {
  run_ranks({{3}, long_timeout, {}}, [](const RankContext& context) {
    const Comm comm(context);
    if (context.rank != 0) {
      while (settled(comm) == epcclSuccess) continue;
      return;
    }
    std::thread revoker([&comm, caller = gettid()] {
      wait_until_asleep(caller);
      EXPECT_EQ(epcclCommRevoke(comm, EPCCL_REVOKE_DEFAULT), epcclSuccess);
    });
    int excluded = 2;
    epcclComm_t rest = nullptr;
    EXPECT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclRemoteError);
    EXPECT_EQ(rest, nullptr);
    revoker.join();
  });
}

TEST(RevokeNonblocking, IsPolled) {
  run_ranks({{2}, long_timeout, {}}, [](const RankContext& context) {
    epcclConfig_t config = nonblocking_config();
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRankConfig(&comm, 2, context.id, context.rank, &config), epcclInProgress);
    ASSERT_EQ(settled(comm), epcclSuccess) << epcclGetLastError(comm);
    context.meet();
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    Exchange exchange(context.rank, 2, 10);
    if (context.rank == 0) {
      EXPECT_EQ(exchange.start(comm, stream), epcclSuccess);
    }
    EXPECT_EQ(epcclCommRevoke(comm, EPCCL_REVOKE_DEFAULT), epcclInProgress);
    EXPECT_EQ(settled(comm), epcclSuccess);
    EXPECT_EQ(epcclStreamSynchronize(stream) == epcclSuccess, context.rank == 1);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
    EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST(RevokeMisuse, IsRefused) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    EXPECT_EQ(epcclCommRevoke(nullptr, EPCCL_REVOKE_DEFAULT), epcclInvalidArgument);
    EXPECT_EQ(epcclCommRevoke(comm, 4), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "revokeFlags 4"), nullptr)
        << epcclGetLastError(nullptr);
    EXPECT_EQ(Exchange(0, 1, 1).start(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
