// The survivors of a death go on without the dead.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <tuple>

#include "base/unique_fd.hpp"

#include "asleep.hpp"
#include "exchange.hpp"
#include "polling.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

struct Case {
  std::vector<int> ranks_per_node;
  std::vector<int> dead;
};

void PrintTo(const Case& each, std::ostream* out) {
  *out << each.ranks_per_node.size() << " nodes, dead:";
  for (const int rank : each.dead) *out << " " << rank;
}

bool contains(const std::vector<int>& list, int rank) {
  return std::find(list.begin(), list.end(), rank) != list.end();
}

int new_rank(const std::vector<int>& gone, int rank) {
  return rank -
         static_cast<int>(std::count_if(gone.begin(), gone.end(), [&](int each) { return each < rank; }));
}

class Shrink : public testing::TestWithParam<Case> {};

// Rank 0's process holds the rendezvous of the parent.
INSTANTIATE_TEST_SUITE_P(Deaths, Shrink,
                         testing::Values(Case{{2}, {1}}, Case{{3}, {0}}, Case{{4}, {1, 3}}, Case{{4}, {0, 1}},
                                         Case{{2, 2}, {2}}, Case{{2, 2}, {0}}, Case{{4, 4}, {0, 5, 6}},
                                         Case{{2, 2}, {0, 1}}));

TEST_P(Shrink, AfterAKillGivesTheSurvivorsANewCommunicator) {
  const std::vector<int>& dead = GetParam().dead;
  run_ranks({GetParam().ranks_per_node, {{"EPCCL_TIMEOUT", "20"}}, dead}, [&](const RankContext& context) {
    const Comm comm(context);
    Exchange before(context.rank, context.ranks, 100);
    ASSERT_EQ(before.start(comm), epcclSuccess);
    context.meet();
    if (contains(dead, context.rank)) kill(getpid(), SIGKILL);
    epcclResult_t result = epcclSuccess;
    while (result == epcclSuccess) result = Exchange(context.rank, context.ranks, 100).start(comm);
    EXPECT_EQ(result, epcclRemoteError) << epcclGetLastError(comm);

    epcclComm_t rest = nullptr;
    std::vector<int> excluded(dead.rbegin(), dead.rend());  // in any order
    ASSERT_EQ(epcclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), &rest, nullptr,
                              EPCCL_SHRINK_ABORT),
              epcclSuccess)
        << epcclGetLastError(comm);
    const int ranks = context.ranks - static_cast<int>(dead.size());
    expect_works(rest, new_rank(dead, context.rank), ranks);
    // And so on: the new one can be split.
    epcclComm_t all = nullptr;
    ASSERT_EQ(epcclCommSplit(rest, 0, 0, &all, nullptr), epcclSuccess) << epcclGetLastError(rest);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
    expect_works(all, new_rank(dead, context.rank), ranks);
    EXPECT_EQ(epcclCommDestroy(all), epcclSuccess);
  });
}

// Nobody died: the excluded rank does something else meanwhile, and the parent goes on as before.
TEST(ShrinkDefault, LeavesTheParentUsable) {
  run_ranks({{2, 2}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    for (int excluded = 0; excluded < context.ranks; ++excluded) {
      epcclComm_t rest = nullptr;
      if (excluded != context.rank) {
        ASSERT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclSuccess)
            << epcclGetLastError(comm);
        expect_works(rest, new_rank({excluded}, context.rank), 3);
      }
      expect_works(comm, context.rank, context.ranks);
      if (rest != nullptr) {
        EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
      }
    }
    epcclComm_t all = nullptr;
    ASSERT_EQ(epcclCommSplit(comm, 0, 0, &all, nullptr), epcclSuccess) << epcclGetLastError(comm);
    expect_works(all, context.rank, context.ranks);
    EXPECT_EQ(epcclCommDestroy(all), epcclSuccess);
  });
}

TEST(ShrinkDefault, TakesItsListInAnyOrderAndTwice) {
  run_ranks({{2, 2}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    int excluded[] = {3, 1, 3};
    if (context.rank % 2 == 0) {
      epcclComm_t rest = nullptr;
      ASSERT_EQ(epcclCommShrink(comm, excluded, 3, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclSuccess)
          << epcclGetLastError(comm);
      expect_works(rest, context.rank / 2, 2);
      EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
    }
    // The parent's ranks can still meet.
    epcclComm_t all = nullptr;
    ASSERT_EQ(epcclCommSplit(comm, 0, 0, &all, nullptr), epcclSuccess) << epcclGetLastError(comm);
    expect_works(all, context.rank, context.ranks);
    EXPECT_EQ(epcclCommDestroy(all), epcclSuccess);
  });
}

TEST(ShrinkDefault, IsRefusedWhereTheParentHasFailed) {
  run_ranks({{3}, {{"EPCCL_TIMEOUT", "20"}}, {2}}, [](const RankContext& context) {
    const Comm comm(context);
    ASSERT_EQ(Exchange(context.rank, 3, 10).start(comm), epcclSuccess);
    context.meet();
    if (context.rank == 2) kill(getpid(), SIGKILL);
    while (Exchange(context.rank, 3, 10).start(comm) == epcclSuccess) continue;
    int dead = 2;
    epcclComm_t rest = nullptr;
    EXPECT_EQ(epcclCommShrink(comm, &dead, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclRemoteError);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "EPCCL_SHRINK_ABORT"), nullptr)
        << epcclGetLastError(nullptr);
    EXPECT_EQ(rest, nullptr);
    ASSERT_EQ(epcclCommShrink(comm, &dead, 1, &rest, nullptr, EPCCL_SHRINK_ABORT), epcclSuccess)
        << epcclGetLastError(nullptr);
    expect_works(rest, context.rank, 2);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
  });
}

// A rank blocks in a collective that cannot end; another thread of it shrinks. The others are not in that collective.
TEST(ShrinkAbort, EndsWhatIsInFlightOnTheParent) {
  run_ranks({{3}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    if (context.rank == 2) {
      // Lives, and is excluded.
      context.meet();
      epcclResult_t failure = epcclSuccess;
      while (failure == epcclSuccess) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ASSERT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
      }
      EXPECT_EQ(failure, epcclRemoteError);
      return;
    }
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    Exchange exchange(context.rank, 3, 1000);
    if (context.rank == 0) {
      EXPECT_EQ(exchange.start(comm, stream), epcclSuccess);
    }
    context.meet();
    int excluded = 2;
    epcclComm_t rest = nullptr;
    ASSERT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, nullptr, EPCCL_SHRINK_ABORT), epcclSuccess)
        << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclStreamSynchronize(stream), context.rank == 0 ? epcclRemoteError : epcclSuccess);
    expect_works(rest, context.rank, 2);
    EXPECT_NE(Exchange(context.rank, 3, 1).start(comm), epcclSuccess);  // the parent is over
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

// Not all the dead were excluded: an error that names who is missing, as soon as it is known, then a better list.
TEST(ShrinkAgain, WithAnotherListAfterAFailure) {
  run_ranks({{4}, {{"EPCCL_TIMEOUT", "60"}}, {0, 2}}, [](const RankContext& context) {
    const Comm comm(context);
    ASSERT_EQ(Exchange(context.rank, 4, 10).start(comm), epcclSuccess);
    context.meet();
    if (context.rank % 2 == 0) kill(getpid(), SIGKILL);
    while (Exchange(context.rank, 4, 10).start(comm) == epcclSuccess) continue;
    context.meeting->come(2);  // both know: who comes later than the other's time is missing itself
    int dead[] = {0, 2};
    epcclComm_t rest = nullptr;
    epcclConfig_t impatient = EPCCL_CONFIG_INITIALIZER;
    impatient.timeout = 6;
    // Without rank 0 only: rank 1 waits for rank 2.
    EXPECT_EQ(epcclCommShrink(comm, dead, 1, &rest, &impatient, EPCCL_SHRINK_ABORT), epcclRemoteError);
    // By its new rank where the time was up, by its old one where its death was heard of: the process that tells of it dies as well.
    EXPECT_THAT(epcclGetLastError(nullptr),
                testing::AnyOf(testing::HasSubstr("missing: 1"), testing::HasSubstr("rank 2 ")));
    // Without rank 2 only: the place to meet would be rank 0's.
    EXPECT_EQ(epcclCommShrink(comm, dead + 1, 1, &rest, &impatient, EPCCL_SHRINK_ABORT), epcclRemoteError);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "meeting at rank 0 of the parent"), nullptr)
        << epcclGetLastError(nullptr);
    EXPECT_EQ(rest, nullptr);
    ASSERT_EQ(epcclCommShrink(comm, dead, 2, &rest, nullptr, EPCCL_SHRINK_ABORT), epcclSuccess)
        << epcclGetLastError(nullptr);
    expect_works(rest, context.rank / 2, 2);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
  });
}

class ShrinkInVain : public testing::TestWithParam<std::tuple<int, int>> {};
// Rank 0's process tells of other ranks' deaths.
INSTANTIATE_TEST_SUITE_P(FlagsAndTheDead, ShrinkInVain,
                         testing::Combine(testing::Values(EPCCL_SHRINK_DEFAULT, EPCCL_SHRINK_ABORT),
                                          testing::Values(0, 2)));

// Of four ranks three are to meet, and one of those dies: the others hear of it long before the time is up.
TEST_P(ShrinkInVain, EndsWhenARankDiesThatIsToCome) {
  const UniqueFd waiting(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  const auto [flags, dead] = GetParam();
  run_ranks({{4}, long_timeout, {dead}}, [&, flags = flags, dead = dead](const RankContext& context) {
    const Comm comm(context);
    ASSERT_EQ(Exchange(context.rank, 4, 10).start(comm), epcclSuccess);
    context.meet();  // a shrink ends the others' work
    if (context.rank == 3) return;
    if (context.rank == dead) {
      for (eventfd_t one = 0, time = 0; time < 2; ++time) ASSERT_EQ(eventfd_read(waiting.get(), &one), 0);
      kill(getpid(), SIGKILL);
    }
    std::thread teller([&waiting, caller = gettid()] {
      wait_until_asleep(caller);
      EXPECT_EQ(eventfd_write(waiting.get(), 1), 0);
    });
    int excluded = 3;
    epcclComm_t rest = nullptr;
    EXPECT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, nullptr, flags), epcclRemoteError);
    EXPECT_THAT(epcclGetLastError(nullptr), testing::HasSubstr("will not come: "));
    EXPECT_THAT(epcclGetLastError(nullptr), testing::HasSubstr("rank " + std::to_string(dead) + " "));
    teller.join();
    if (flags == EPCCL_SHRINK_DEFAULT) return;
    int both[] = {dead, 3};
    ASSERT_EQ(epcclCommShrink(comm, both, 2, &rest, nullptr, flags), epcclSuccess)
        << epcclGetLastError(nullptr);
    expect_works(rest, new_rank({dead, 3}, context.rank), 2);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
  });
}

// The process of the rendezvous is dead, so nobody tells of the next death: who waits on that one's node sees it.
TEST(ShrinkThatWaits, EndsWhenARankOfTheNodeDiesAfterTheRendezvous) {
  const Meeting survivors;
  run_ranks({{4}, long_timeout, {0, 2}}, [&](const RankContext& context) {
    const Comm comm(context);
    ASSERT_EQ(Exchange(context.rank, 4, 10).start(comm), epcclSuccess);
    context.meet();
    if (context.rank == 0) kill(getpid(), SIGKILL);
    while (Exchange(context.rank, 4, 10).start(comm) == epcclSuccess) continue;
    survivors.come(3);
    if (context.rank == 2) kill(getpid(), SIGKILL);
    int dead[] = {0, 2};
    epcclComm_t rest = nullptr;
    EXPECT_EQ(epcclCommShrink(comm, dead, 1, &rest, nullptr, EPCCL_SHRINK_ABORT), epcclRemoteError);
    EXPECT_THAT(epcclGetLastError(nullptr), testing::HasSubstr("will not come: rank 2 (same node, pid "));
    int known[4] = {}, count = 0;
    EXPECT_EQ(epcclCommGetLostRanks(comm, known, 4, &count), epcclSuccess);
    EXPECT_EQ(std::vector(known, known + count), (std::vector{0, 2}));
    ASSERT_EQ(epcclCommShrink(comm, dead, 2, &rest, nullptr, EPCCL_SHRINK_ABORT), epcclSuccess)
        << epcclGetLastError(nullptr);
    expect_works(rest, context.rank / 2, 2);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
  });
}

// Who did not come has two numbers.
TEST(ShrinkThatWaits, NamesWhoIsMissingAsTheParentDoes) {
  run_ranks({{4}, {{"EPCCL_TIMEOUT", "60"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    context.meet();
    if (context.rank == 1 || context.rank == 3) {
      int excluded = 0;
      epcclComm_t rest = nullptr;
      epcclConfig_t impatient = EPCCL_CONFIG_INITIALIZER;
      impatient.timeout = 2;
      EXPECT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, &impatient, EPCCL_SHRINK_ABORT), epcclRemoteError);
      EXPECT_THAT(epcclGetLastError(nullptr), testing::HasSubstr("missing: 1 (rank 2 of the parent)"));
    }
    context.meet();
  });
}

// One rank gave up before the other had begun: they still meet.
TEST(ShrinkAgain, AfterARankWaitedAlone) {
  const UniqueFd gate(eventfd(0, EFD_CLOEXEC));
  run_ranks({{3}, {}, {}}, [&](const RankContext& context) {
    const Comm comm(context);
    if (context.rank == 2) return;
    int other = 2;
    epcclComm_t rest = nullptr;
    eventfd_t passed = 0;
    if (context.rank == 0) {
      epcclConfig_t impatient = EPCCL_CONFIG_INITIALIZER;
      impatient.timeout = 0.5;
      EXPECT_EQ(epcclCommShrink(comm, &other, 1, &rest, &impatient, EPCCL_SHRINK_ABORT), epcclRemoteError);
      ASSERT_EQ(eventfd_write(gate.get(), 1), 0);
    } else {
      ASSERT_EQ(eventfd_read(gate.get(), &passed), 0);
    }
    ASSERT_EQ(epcclCommShrink(comm, &other, 1, &rest, nullptr, EPCCL_SHRINK_ABORT), epcclSuccess)
        << epcclGetLastError(nullptr);
    expect_works(rest, context.rank, 2);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
  });
}

// The new communicators' first ranks differ or not; a rank that agrees with one of the two hears of it all the same. The time-out is
// that of a test that hangs.
TEST(ShrinkDisagreement, IsAnErrorThatNamesTheListsOnEveryRank) {
  struct Lists {
    std::array<std::vector<int>, 3> excluded;
    const char* text;
  };
  const std::array<Lists, 3> cases{Lists{{{{3}, {2, 3}, {3}}}, "rank 1 excludes 2, 3"},
                                   Lists{{{{3}, {3}, {0, 3}}}, "rank 2 excludes 0, 3"},
                                   Lists{{{{1, 3}, {2, 3}, {0, 3}}}, "rank 0 excludes 1, 3"}};
  for (const int flags : {EPCCL_SHRINK_DEFAULT, EPCCL_SHRINK_ABORT})
    run_ranks({{4}, {{"EPCCL_TIMEOUT", "100"}}, {}}, [&](const RankContext& context) {
      const Comm comm(context);
      for (const Lists& one : cases) {
        if (context.rank == 3) break;
        std::vector<int> excluded = one.excluded[static_cast<size_t>(context.rank)];
        epcclComm_t rest = nullptr;
        EXPECT_EQ(
            epcclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), &rest, nullptr, flags),
            epcclInvalidUsage);
        EXPECT_THAT(epcclGetLastError(nullptr),
                    testing::HasSubstr("ranks exclude different ranks in a shrink: rank "));
        EXPECT_THAT(epcclGetLastError(nullptr), testing::ContainsRegex(" excludes .*3"));
        EXPECT_THAT(epcclGetLastError(nullptr), testing::HasSubstr(one.text));
        EXPECT_EQ(rest, nullptr);
      }
      if (context.rank == 3) return;
      int dead = 3;
      epcclComm_t rest = nullptr;
      ASSERT_EQ(epcclCommShrink(comm, &dead, 1, &rest, nullptr, flags), epcclSuccess)
          << epcclGetLastError(nullptr);
      expect_works(rest, context.rank, 3);
      EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
    });
}

// To make a communicator takes no longer waits than the config says, though the parent's calls wait for ever.
TEST(ShrinkTimeout, OfAParentWhoseCallsWaitForEverIsItsConfigs) {
  run_ranks({{3}, long_timeout, {}}, [](const RankContext& context) {
    const Comm comm(context);
    if (context.rank == 0) {
      EXPECT_EQ(epcclCommSetTimeout(comm, INFINITY), epcclSuccess);
      setenv("EPCCL_TIMEOUT", "0.5", 1);
      int excluded = 2;
      epcclComm_t rest = nullptr;
      EXPECT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, nullptr, EPCCL_SHRINK_ABORT), epcclRemoteError);
      EXPECT_EQ(epcclGetLastErrorReason(nullptr), epcclReasonTimeout) << epcclGetLastError(nullptr);
    }
    context.meet();
  });
}

// Rank 1 is later than the parent's calls would wait.
TEST(ShrinkTimeout, OfTheCallsIsTheNewConfigsWhateverWasSetForTheParents) {
  run_ranks({{3}, long_timeout, {}}, [](const RankContext& context) {
    const Comm comm(context);
    if (context.rank == 2) return;
    EXPECT_EQ(epcclCommSetTimeout(comm, 0.1), epcclSuccess);
    int excluded = 2, value = context.rank;
    epcclConfig_t patient = EPCCL_CONFIG_INITIALIZER;
    patient.timeout = 60;
    epcclComm_t rest = nullptr;
    ASSERT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, &patient, EPCCL_SHRINK_ABORT), epcclSuccess)
        << epcclGetLastError(nullptr);
    if (context.rank == 1) usleep(500'000);
    EXPECT_EQ(context.rank == 1 ? epcclSend(&value, 1, epcclInt32, 0, rest, nullptr)
                                : epcclRecv(&value, 1, epcclInt32, 1, rest, nullptr),
              epcclSuccess)
        << epcclGetLastError(rest);
    EXPECT_EQ(value, 1);
    EXPECT_EQ(epcclCommDestroy(rest), epcclSuccess);
  });
}

TEST(ShrinkMisuse, IsRefused) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    epcclComm_t rest = nullptr;
    int own = 0, other = 5;
    EXPECT_EQ(epcclCommShrink(comm, &own, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "which is this one"), nullptr)
        << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclCommShrink(comm, &other, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclInvalidArgument);
    EXPECT_EQ(epcclCommShrink(comm, nullptr, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclInvalidArgument);
    EXPECT_EQ(epcclCommShrink(comm, &other, 0, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclInvalidArgument);
    EXPECT_EQ(epcclCommShrink(comm, &other, 1, &rest, nullptr, 7), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "shrinkFlags 7"), nullptr)
        << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclCommShrink(comm, &other, 1, nullptr, nullptr, EPCCL_SHRINK_DEFAULT), epcclInvalidArgument);
    EXPECT_EQ(Exchange(0, 1, 1).start(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
