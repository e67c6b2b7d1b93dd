// epcclCommAbort from another thread, whatever it is that blocks.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/unique_fd.hpp"

#include "asleep.hpp"
#include "exchange.hpp"
#include "polling.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

/// Aborts `comm` from another thread as soon as its handle is there, and the caller blocks in its next call.
class Aborter {
 public:
  explicit Aborter(epcclComm_t* comm)
      : thread_([comm, caller = gettid()] {
          epcclComm_t handle = nullptr;
          while (handle == nullptr) handle = __atomic_load_n(comm, __ATOMIC_ACQUIRE);
          wait_until_asleep(caller);
          EXPECT_EQ(epcclCommAbort(handle), epcclSuccess) << epcclGetLastError(nullptr);
        }) {}
  Aborter(const Aborter&) = delete;
  Aborter& operator=(const Aborter&) = delete;
  ~Aborter() { thread_.join(); }

 private:
  std::thread thread_;
};

epcclComm_t join(const RankContext& context) {
  epcclComm_t comm = nullptr;
  EXPECT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess)
      << epcclGetLastError(nullptr);
  return comm;
}

/// The same ranks once more.
epcclComm_t join_again(epcclComm_t comm) {
  epcclComm_t another = nullptr;
  EXPECT_EQ(epcclCommSplit(comm, 0, 0, &another, nullptr), epcclSuccess) << epcclGetLastError(comm);
  return another;
}

/// A group of one receive on each, from rank 1, to be ended.
void begin_receives(epcclComm_t first, int* of_first, epcclComm_t second, int* of_second) {
  ASSERT_EQ(epcclGroupStart(), epcclSuccess);
  EXPECT_EQ(epcclRecv(of_first, 1, epcclInt32, 1, first, nullptr), epcclSuccess);
  EXPECT_EQ(epcclRecv(of_second, 1, epcclInt32, 1, second, nullptr), epcclSuccess);
}

void wait_for_failure(epcclComm_t comm) {
  epcclResult_t state = epcclSuccess;
  while (state == epcclSuccess) ASSERT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
  EXPECT_EQ(state, epcclRemoteError);
  EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
}

TEST(AbortOf, ABlockedInitEndsIt) {
  run_ranks({{1}, long_timeout, {}}, [](const RankContext& context) {
    epcclComm_t comm = nullptr;
    const Aborter aborter(&comm);
    EXPECT_EQ(epcclCommInitRank(&comm, 2, context.id, 0), epcclRemoteError);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "aborted"), nullptr) << epcclGetLastError(nullptr);
    EXPECT_EQ(comm, nullptr);
  });
}

// Ranks 0 and 1 of 3, by one thread; both end when one is aborted.
TEST(AbortOf, ABlockedGroupOfInitsEndsIt) {
  run_ranks({{1}, long_timeout, {}}, [](const RankContext& context) {
    epcclComm_t comms[2] = {};
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_EQ(epcclCommInitRank(&comms[rank], 3, context.id, rank), epcclSuccess);
    const Aborter aborter(&comms[1]);
    EXPECT_EQ(epcclGroupEnd(), epcclRemoteError);
    EXPECT_EQ(comms[0], nullptr);
    EXPECT_EQ(comms[1], nullptr);
  });
}

TEST(AbortOf, TheParentEndsABlockedSplit) {
  run_ranks({{2}, long_timeout, {}}, [](const RankContext& context) {
    epcclComm_t comm = join(context), child = nullptr;
    if (context.rank == 1) {
      wait_for_failure(comm);
      return;
    }
    const Aborter aborter(&comm);
    EXPECT_EQ(epcclCommSplit(comm, 0, 0, &child, nullptr), epcclRemoteError);
    EXPECT_EQ(child, nullptr);
  });
}

// All have said their colours, and one of the new communicator does not come: the wait is for the child, not for the parent.
TEST(AbortOf, TheParentEndsABlockedShrink) {
  run_ranks({{3}, long_timeout, {}}, [](const RankContext& context) {
    epcclComm_t comm = join(context), rest = nullptr;
    if (context.rank != 1) {
      wait_for_failure(comm);
      return;
    }
    int excluded = 2;
    const Aborter aborter(&comm);
    EXPECT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclRemoteError);
    EXPECT_EQ(rest, nullptr);
  });
}

// Ranks 0 and 1 are to meet, and 1 gives the parent up instead.
TEST(AbortOf, TheParentElsewhereEndsABlockedShrink) {
  const UniqueFd waiting(eventfd(0, EFD_CLOEXEC));
  run_ranks({{3}, long_timeout, {}}, [&](const RankContext& context) {
    epcclComm_t comm = join(context), rest = nullptr;
    if (context.rank == 1) {
      eventfd_t once = 0;
      ASSERT_EQ(eventfd_read(waiting.get(), &once), 0);
      EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
      return;
    }
    if (context.rank == 2) {
      wait_for_failure(comm);
      return;
    }
    std::thread teller([&waiting, caller = gettid()] {
      wait_until_asleep(caller);
      EXPECT_EQ(eventfd_write(waiting.get(), 1), 0);
    });
    int excluded = 2;
    EXPECT_EQ(epcclCommShrink(comm, &excluded, 1, &rest, nullptr, EPCCL_SHRINK_DEFAULT), epcclRemoteError);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "aborted by rank 1"), nullptr)
        << epcclGetLastError(nullptr);
    teller.join();
    EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST(AbortOf, ACommunicatorEndsItsBlockedFinalize) {
  run_ranks({{2}, long_timeout, {}}, [](const RankContext& context) {
    epcclComm_t comm = join(context);
    if (context.rank == 1) {
      wait_for_failure(comm);
      return;
    }
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    Exchange exchange(0, 2, 10);
    EXPECT_EQ(exchange.start(comm, stream), epcclSuccess);
    {
      const Aborter aborter(&comm);
      EXPECT_EQ(epcclCommFinalize(comm), epcclRemoteError);
    }
    EXPECT_EQ(epcclStreamSynchronize(stream), epcclRemoteError);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

// The call in front of it is behind an event of a stream on which another communicator's call waits.
TEST(AbortOf, ACommunicatorEndsACallThatWaitsForItsTurn) {
  run_ranks({{2}, long_timeout, {}}, [](const RankContext& context) {
    const Comm late(context);
    Exchange exchange(context.rank, 2, 10);
    if (context.rank == 1) {
      context.meet();
      EXPECT_EQ(exchange.start(late), epcclSuccess);
      return;
    }
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitAll(&comm, 1, nullptr), epcclSuccess);
    epcclStream_t held = nullptr, behind = nullptr;
    epcclEvent_t event = nullptr;
    ASSERT_EQ(epcclStreamCreate(&held), epcclSuccess);
    ASSERT_EQ(epcclStreamCreate(&behind), epcclSuccess);
    ASSERT_EQ(epcclEventCreate(&event), epcclSuccess);
    EXPECT_EQ(exchange.start(late, held), epcclSuccess);
    EXPECT_EQ(epcclEventRecord(event, held), epcclSuccess);
    EXPECT_EQ(epcclStreamWaitEvent(behind, event), epcclSuccess);
    Exchange first(0, 1, 10), second(0, 1, 10);
    EXPECT_EQ(first.start(comm, behind), epcclSuccess);
    {
      const Aborter aborter(&comm);
      EXPECT_EQ(second.start(comm), epcclRemoteError);
    }
    context.meet();
    EXPECT_EQ(epcclStreamSynchronize(held), epcclSuccess) << epcclGetLastError(late);
    EXPECT_EQ(epcclStreamSynchronize(behind), epcclRemoteError);
    EXPECT_EQ(epcclEventDestroy(event), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(held), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(behind), epcclSuccess);
  });
}

// A thread drives ranks 0 and 1 of 3. Rank 2 does not call.
class AbortOfAGroup : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(CollectivesOrMessages, AbortOfAGroup, testing::Bool());

TEST_P(AbortOfAGroup, EndsAllRanksOfTheThread) {
  run_ranks({{2}, long_timeout, {}}, [messages = GetParam()](const RankContext& context) {
    if (context.rank == 1) {
      wait_for_failure(join({2, 3, context.id}));
      return;
    }
    epcclComm_t comms[2] = {};
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_EQ(epcclCommInitRank(&comms[rank], 3, context.id, rank), epcclSuccess);
    ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    Exchange first(0, 3, 10), second(1, 3, 10);
    int value = 0;
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    if (messages) {
      for (epcclComm_t comm : comms)
        EXPECT_EQ(epcclRecv(&value, 1, epcclInt32, 2, comm, nullptr), epcclSuccess);
    } else {
      EXPECT_EQ(first.start(comms[0]), epcclSuccess);
      EXPECT_EQ(second.start(comms[1]), epcclSuccess);
    }
    {
      const Aborter aborter(&comms[1]);
      EXPECT_EQ(epcclGroupEnd(), epcclRemoteError) << epcclGetLastError(nullptr);
    }
    EXPECT_EQ(epcclCommDestroy(comms[0]), epcclSuccess);
  });
}

// Rank 1 sends what the second communicator's receive waits for when the first one is gone.
TEST(AbortOf, ACommunicatorLeavesTheOthersOfItsGroupAlone) {
  run_ranks({{2}, long_timeout, {}}, [](const RankContext& context) {
    epcclComm_t first = join(context), second = join_again(first);
    int value = 7;
    if (context.rank == 0) {
      int never = 0;
      value = 0;
      begin_receives(first, &never, second, &value);
      const Aborter aborter(&first);
      EXPECT_EQ(epcclGroupEnd(), epcclRemoteError);
      EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "aborted"), nullptr) << epcclGetLastError(nullptr);
    } else {
      wait_for_failure(first);
      EXPECT_EQ(epcclSend(&value, 1, epcclInt32, 0, second, nullptr), epcclSuccess);
    }
    EXPECT_EQ(value, 7);
    epcclResult_t state = epcclRemoteError;
    EXPECT_EQ(epcclCommGetAsyncError(second, &state), epcclSuccess);
    EXPECT_EQ(state, epcclSuccess) << epcclGetLastError(second);
    Exchange exchange(context.rank, 2, 10);
    EXPECT_EQ(exchange.start(second), epcclSuccess) << epcclGetLastError(second);
    EXPECT_EQ(exchange.wrong(), 0U);
    EXPECT_EQ(epcclCommDestroy(second), epcclSuccess);
  });
}

// Revoking waits for the communicator's own work alone: rank 1 sends on the second one when that is over.
TEST(RevokeOf, ACommunicatorDoesNotWaitForTheOthersOfItsGroup) {
  run_ranks({{2}, long_timeout, {}}, [](const RankContext& context) {
    epcclComm_t first = join(context), second = join_again(first);
    int value = 7;
    if (context.rank == 0) {
      int never = 0;
      begin_receives(first, &never, second, &value);
      std::thread revoker([&, caller = gettid()] {
        wait_until_asleep(caller);
        EXPECT_EQ(epcclCommRevoke(first, 0), epcclSuccess) << epcclGetLastError(nullptr);
        context.meet();
      });
      EXPECT_EQ(epcclGroupEnd(), epcclRemoteError);
      revoker.join();
    } else {
      context.meet();
      EXPECT_EQ(epcclSend(&value, 1, epcclInt32, 0, second, nullptr), epcclSuccess);
    }
    EXPECT_EQ(epcclCommDestroy(first), epcclSuccess);
    EXPECT_EQ(epcclCommDestroy(second), epcclSuccess);
  });
}

// The other way round: what a split made is a communicator of its own.
TEST(AbortOf, TheParentLeavesTheChildAlone) {
  run_ranks({{2, 2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
    epcclComm_t comm = join(context), child = nullptr;
    ASSERT_EQ(epcclCommSplit(comm, 0, 0, &child, nullptr), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    // Connections between nodes are made now.
    Exchange exchange(context.rank, 4, 1000);
    EXPECT_EQ(exchange.start(child), epcclSuccess) << epcclGetLastError(child);
    EXPECT_EQ(exchange.wrong(), 0U);
    EXPECT_EQ(epcclCommDestroy(child), epcclSuccess);
  });
}

TEST(AbortOf, AHandleTwiceIsAnErrorThatSaysSo) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    epcclComm_t comm = join(context);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    EXPECT_EQ(epcclCommAbort(comm), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "was aborted"), nullptr) << epcclGetLastError(nullptr);
    // A new communicator never gets an old one's handle.
    epcclUniqueId id;
    ASSERT_EQ(epcclGetUniqueId(&id), epcclSuccess);
    epcclComm_t next = join({0, 1, id});
    EXPECT_NE(next, comm);
    EXPECT_EQ(epcclCommDestroy(next), epcclSuccess);
    EXPECT_EQ(Exchange(0, 1, 1).start(next), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "was destroyed"), nullptr)
        << epcclGetLastError(nullptr);
  });
}

}  // namespace
}  // namespace epccl::tests
