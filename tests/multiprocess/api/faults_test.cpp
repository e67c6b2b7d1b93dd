// A rank dies or gives up: every survivor returns an error that names it, and can destroy its communicator.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "asleep.hpp"
#include "ranks.hpp"
#include "refused_calls.hpp"

namespace epccl::tests {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

epcclResult_t exchange(epcclComm_t comm, int ranks, size_t count) {
  std::vector<float> in(count * static_cast<size_t>(ranks)), out(in.size());
  return epcclAlltoall(in.data(), out.data(), count, epcclFloat32, comm, nullptr);
}

class Death : public testing::TestWithParam<std::vector<int>> {};

TEST_P(Death, OfARankByKillIsSeenByAllAtOnce) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "90"}}, {1}}, [](const RankContext& context) {
    Comm comm(context);
    ASSERT_EQ(exchange(comm, context.ranks, 100), epcclSuccess);
    context.meet();
    if (context.rank == 1) kill(getpid(), SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    epcclResult_t result = epcclSuccess;
    while (result == epcclSuccess) result = exchange(comm, context.ranks, 100);
    EXPECT_EQ(result, epcclRemoteError);
    EXPECT_LT(seconds_since(start), 30);  // far from the timeout
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "rank 1"), nullptr) << epcclGetLastError(comm);
    EXPECT_EQ(exchange(comm, context.ranks, 1), epcclRemoteError);  // and it stays so
  });
}

// Its peer has its buffers back: a rank that comes late must not use them, however many calls came before.
TEST(LateRank, HearsThatItsPeerHasGivenUpBeforeItBegins) {
  for (const int before : {0, 1, 7, 8})
    run_ranks({{2}, {}, {}}, [before](const RankContext& context) {
      Comm comm(context);
      constexpr size_t count = 64 << 10;
      for (int call = 0; call < before; ++call)
        ASSERT_EQ(exchange(comm, context.ranks, 1), epcclSuccess) << epcclGetLastError(comm);
      context.meet();
      if (context.rank == 0) {
        ASSERT_EQ(epcclCommSetTimeout(comm, 1), epcclSuccess);
        EXPECT_EQ(exchange(comm, context.ranks, count), epcclRemoteError);
      }
      context.meet();
      if (context.rank == 1) {
        EXPECT_EQ(exchange(comm, context.ranks, count), epcclRemoteError);
        EXPECT_NE(std::strstr(epcclGetLastError(comm), "rank 0"), nullptr) << epcclGetLastError(comm);
      }
    });
}

// To destroy a communicator is no failure; that others go on to call is one, of the program.
TEST_P(Death, IsNotNeededForTheOthersToHearThatARankHasLeft) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "90"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    const auto start = std::chrono::steady_clock::now();
    epcclResult_t result = exchange(comm, context.ranks, 100);
    if (context.rank == 1) {
      EXPECT_EQ(result, epcclSuccess);
      return;
    }
    // One of the others may be in the second call, and be told, while this rank is still in the first.
    if (result == epcclSuccess) result = exchange(comm, context.ranks, 100);
    EXPECT_EQ(result, epcclInvalidUsage);
    EXPECT_LT(seconds_since(start), 30);  // far from the timeout
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "rank 1 (host "), nullptr) << epcclGetLastError(comm);
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "has left after call #1, while"), nullptr)
        << epcclGetLastError(comm);
  });
}

// The process that made the id dies with its rank.
TEST_P(Death, OfTheRankThatMadeTheId) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "20"}}, {0}}, [](const RankContext& context) {
    Comm comm(context);
    ASSERT_EQ(exchange(comm, context.ranks, 100), epcclSuccess);
    context.meet();
    if (context.rank == 0) kill(getpid(), SIGKILL);
    epcclResult_t result = epcclSuccess;
    while (result == epcclSuccess) result = exchange(comm, context.ranks, 100);
    EXPECT_EQ(result, epcclRemoteError) << epcclGetLastError(comm);
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Death, testing::Values(std::vector{3}, std::vector{2, 2}));

TEST(Silence, EndsAfterTheTimeoutAndNamesTheSilentRank) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    ASSERT_EQ(epcclCommSetTimeout(comm, 10), epcclSuccess);
    if (context.rank != 2) {
      EXPECT_EQ(exchange(comm, context.ranks, 10), epcclRemoteError);
      EXPECT_NE(std::strstr(epcclGetLastError(comm), "rank 2"), nullptr) << epcclGetLastError(comm);
    }
    context.meet();
  });
}

TEST(Silence, EndsAfterTheTimeoutHoweverLongRanksSpin) {
  run_ranks({{2}, {{"EPCCL_SPIN", "1000000000"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    ASSERT_EQ(epcclCommSetTimeout(comm, 2), epcclSuccess);
    if (context.rank == 0) {
      EXPECT_EQ(exchange(comm, context.ranks, 10), epcclRemoteError);
      EXPECT_NE(std::strstr(epcclGetLastError(comm), "rank 1"), nullptr) << epcclGetLastError(comm);
    }
    context.meet();
  });
}

TEST(Silence, OfARankThatHasLeftIsToldAsSuch) {
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
    auto comm = std::make_unique<Comm>(context);
    if (context.rank != 0) comm.reset();
    context.meet();
    if (context.rank != 0) return;
    ASSERT_EQ(epcclCommSetTimeout(*comm, 2), epcclSuccess);
    char byte = 0;
    EXPECT_EQ(epcclRecv(&byte, 1, epcclInt8, 1, *comm, nullptr), epcclRemoteError);
    EXPECT_NE(std::strstr(epcclGetLastError(*comm), "recv of 1 int8 from rank 1"), nullptr)
        << epcclGetLastError(*comm);
    EXPECT_NE(std::strstr(epcclGetLastError(*comm), "left: 1, 2"), nullptr) << epcclGetLastError(*comm);
  });
}

TEST_P(Death, IsNotNeededToEndAReceiveFromARankThatHasLeft) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "90"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    char byte = 0;
    const auto start = std::chrono::steady_clock::now();
    if (context.rank == 1) return;
    const int from = context.rank == 0 ? 1 : 0;
    EXPECT_EQ(epcclRecv(&byte, 1, epcclInt8, from, comm, nullptr), epcclInvalidUsage);
    EXPECT_LT(seconds_since(start), 30);  // far from the timeout
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "has left, while rank 0 (host "), nullptr)
        << epcclGetLastError(comm);
    EXPECT_NE(std::strstr(epcclGetLastError(comm), "recv of 1 int8 from rank 1"), nullptr)
        << epcclGetLastError(comm);
  });
}

// The first message comes later than the first of its limits allows, the second does not come at all.
TEST(Silence, LastsAsLongAsTheRankSaysFromCallToCall) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context, nullptr, 90);
    char byte = 0;
    EXPECT_EQ(epcclCommSetTimeout(comm, std::nan("")), epcclInvalidArgument);
    if (context.rank == 1) {
      usleep(500'000);
      EXPECT_EQ(epcclSend(&byte, 1, epcclInt8, 0, comm, nullptr), epcclSuccess);
      EXPECT_EQ(epcclRecv(&byte, 1, epcclInt8, 0, comm, nullptr), epcclRemoteError);
      return;
    }
    ASSERT_EQ(epcclCommSetTimeout(comm, 0.2), epcclSuccess);
    ASSERT_EQ(epcclCommSetTimeout(comm, std::numeric_limits<double>::infinity()), epcclSuccess);
    EXPECT_EQ(epcclRecv(&byte, 1, epcclInt8, 1, comm, nullptr), epcclSuccess) << epcclGetLastError(nullptr);
    ASSERT_EQ(epcclCommSetTimeout(comm, 0.2), epcclSuccess);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(epcclRecv(&byte, 1, epcclInt8, 1, comm, nullptr), epcclRemoteError);
    EXPECT_GT(seconds_since(start), 0.15);
    EXPECT_LT(seconds_since(start), 30);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "timeout"), nullptr) << epcclGetLastError(nullptr);
  });
}

TEST(Abort, FromAnotherThreadEndsABlockedCallHereAndOnTheOthers) {
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "90"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    if (context.rank == 1) {
      // Never enters the collective; learns of the abort when it asks.
      epcclResult_t failure = epcclSuccess;
      while (failure == epcclSuccess) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ASSERT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
      }
      EXPECT_EQ(failure, epcclRemoteError);
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    std::thread aborter([&comm, caller = gettid()] {
      wait_until_asleep(caller);
      EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    });
    EXPECT_EQ(exchange(comm, 2, 10), epcclRemoteError);
    EXPECT_LT(seconds_since(start), 30);
    aborter.join();
    comm.forget();
  });
}

TEST(Joining, WithoutARankEndsAfterTheTimeoutAndNamesTheMissing) {
  run_ranks({{3}, {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    if (context.rank != 2) {
      epcclComm_t comm = nullptr;
      EXPECT_NE(epcclCommInitRank(&comm, 3, context.id, context.rank), epcclSuccess);
      EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "2 of 3 ranks had joined after 10 s; missing: 2"),
                nullptr)
          << epcclGetLastError(nullptr);
      EXPECT_EQ(comm, nullptr);
    }
  });
}

// Rank 2 is to make the shared memory of the second node.
TEST(Joining, WhereANodesMemoryCannotBeMadeEndsForAllAndNamesWhoCouldNot) {
  run_ranks({{2, 2}, {{"EPCCL_TIMEOUT", "90"}}, {}}, [](const RankContext& context) {
    if (context.rank == 2) refuse_calls({SYS_memfd_create});
    epcclComm_t comm = nullptr;
    EXPECT_EQ(epcclCommInitRank(&comm, 4, context.id, context.rank),
              context.rank == 2 ? epcclSystemError : epcclRemoteError);
    const std::string who = context.rank == 2 ? "making the" : "rank 2 could not make its";
    const std::string what = who + " node's shared memory: memfd_create of the node segment: ";
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), what.c_str()), nullptr) << epcclGetLastError(nullptr);
    EXPECT_EQ(comm, nullptr);
  });
}

}  // namespace
}  // namespace epccl::tests
