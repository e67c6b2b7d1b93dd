// Rank 0's process, which holds the rendezvous, has left in order and has ended. The others go on, and hear of each other's ends all the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "base/unique_fd.hpp"

#include "asleep.hpp"
#include "exchange.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

const std::vector<std::pair<std::string, std::string>> timeout{{"EPCCL_TIMEOUT", "60"}};

/// Tells the other ranks which process rank 0 is, for them to wait until it has ended.
class FirstProcess {
 public:
  FirstProcess() { EXPECT_EQ(pipe(ends_.data()), 0); }
  FirstProcess(const FirstProcess&) = delete;
  FirstProcess& operator=(const FirstProcess&) = delete;
  ~FirstProcess() {
    for (const int end : ends_) close(end);
  }
  /// With nothing else of a regular end.
  [[noreturn]] void ends(int others) const {
    const pid_t self = getpid();
    for (int rank = 0; rank < others; ++rank)
      if (write(ends_[1], &self, sizeof self) != sizeof self) _exit(1);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  void wait_for_end() const {
    pid_t first = 0;
    ASSERT_EQ(read(ends_[0], &first, sizeof first), static_cast<ssize_t>(sizeof first));
    const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, first, 0)));
    pollfd ended{process.get(), POLLIN, 0};
    if (process) {
      ASSERT_EQ(poll(&ended, 1, 60'000), 1);
    }
  }

 private:
  std::array<int, 2> ends_{};
};

/// The others' communicator, once rank 0 has left it and its process has ended; on rank 0 it does not return.
epcclComm_t go_on_without_rank_0(const RankContext& context, const FirstProcess& first) {
  epcclComm_t comm = nullptr;
  EXPECT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
  EXPECT_EQ(Exchange(context.rank, context.ranks, 10).start(comm), epcclSuccess);
  if (context.rank == 0) {
    EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
    first.ends(context.ranks - 1);
  }
  first.wait_for_end();
  return comm;
}

/// Of whom an error tells, which is not that nobody came in time.
testing::Matcher<const char*> names(const char* rank) {
  return testing::AllOf(testing::HasSubstr(rank), testing::Not(testing::HasSubstr("timeout")));
}

class WithoutRendezvous : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, WithoutRendezvous, testing::Values(std::vector{3}, std::vector{1, 2}));

TEST_P(WithoutRendezvous, WhoCallsACollectiveHearsWhoHasLeftAfterWhichCall) {
  const FirstProcess first;
  run_ranks({GetParam(), timeout, {}}, [&](const RankContext& context) {
    const epcclComm_t comm = go_on_without_rank_0(context, first);
    EXPECT_NE(Exchange(context.rank, 3, 10).start(comm), epcclSuccess);
    EXPECT_THAT(epcclGetLastError(comm), testing::ContainsRegex("rank 0 .* has left after call #1"));
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

TEST_P(WithoutRendezvous, WhoWaitsForAMessageOfTheOneThatHasLeftHearsSo) {
  const FirstProcess first;
  run_ranks({GetParam(), timeout, {}}, [&](const RankContext& context) {
    const epcclComm_t comm = go_on_without_rank_0(context, first);
    int got = 0;
    EXPECT_NE(epcclRecv(&got, 1, epcclInt, 0, comm, nullptr), epcclSuccess);
    EXPECT_THAT(epcclGetLastError(comm), names("rank 0"));
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

TEST_P(WithoutRendezvous, TheOthersStillExchangeMessages) {
  const FirstProcess first;
  run_ranks({GetParam(), timeout, {}}, [&](const RankContext& context) {
    const epcclComm_t comm = go_on_without_rank_0(context, first);
    int number = context.rank == 1 ? 17 : 0;
    EXPECT_EQ(context.rank == 1 ? epcclSend(&number, 1, epcclInt, 2, comm, nullptr)
                                : epcclRecv(&number, 1, epcclInt, 1, comm, nullptr),
              epcclSuccess)
        << epcclGetLastError(comm);
    EXPECT_EQ(number, 17);
    EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST_P(WithoutRendezvous, AKilledRankIsNamedByWhoWaitsForIt) {
  const UniqueFd waiting(eventfd(0, EFD_CLOEXEC));
  const FirstProcess first;
  run_ranks({GetParam(), timeout, {1}}, [&](const RankContext& context) {
    const epcclComm_t comm = go_on_without_rank_0(context, first);
    if (context.rank == 1) {
      eventfd_t once = 0;
      ASSERT_EQ(eventfd_read(waiting.get(), &once), 0);
      kill(getpid(), SIGKILL);
    }
    std::thread teller([&waiting, caller = gettid()] {
      wait_until_asleep(caller);
      EXPECT_EQ(eventfd_write(waiting.get(), 1), 0);
    });
    int got = 0;
    EXPECT_EQ(epcclRecv(&got, 1, epcclInt, 1, comm, nullptr), epcclRemoteError);
    EXPECT_THAT(epcclGetLastError(comm), names("rank 1"));
    teller.join();
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
