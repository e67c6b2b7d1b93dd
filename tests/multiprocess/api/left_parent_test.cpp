// A rank that leaves a communicator while the others make a new one of it, which waits for that rank: they hear of it long before the time is up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <tuple>

#include "base/unique_fd.hpp"

#include "asleep.hpp"
#include "exchange.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

enum class Made { split_of_revoked, shrink_of_revoked, shrink, shrink_that_aborts };
enum class Left { destroyed, aborted };

const RunOptions three_ranks{{3}, {{"EPCCL_TIMEOUT", "60"}}, {}};
constexpr int excluded = 0, leaver = 2;

bool is_revoked(Made made) {
  return made == Made::split_of_revoked || made == Made::shrink_of_revoked;
}

epcclResult_t make(Made made, epcclComm_t comm, epcclComm_t* rest) {
  if (made == Made::split_of_revoked) return epcclCommSplit(comm, 0, 0, rest, nullptr);
  int rank = excluded;
  return epcclCommShrink(comm, &rank, 1, rest, nullptr,
                         made == Made::shrink_that_aborts ? EPCCL_SHRINK_ABORT : EPCCL_SHRINK_DEFAULT);
}

class LeftParent : public testing::TestWithParam<std::tuple<Made, Left>> {};
INSTANTIATE_TEST_SUITE_P(MadeAndLeft, LeftParent,
                         testing::Combine(testing::Values(Made::split_of_revoked, Made::shrink_of_revoked,
                                                          Made::shrink, Made::shrink_that_aborts),
                                          testing::Values(Left::destroyed, Left::aborted)));

TEST_P(LeftParent, EndsWhatTheOthersMakeOfIt) {
  const UniqueFd waiting(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  const auto [made, left] = GetParam();
  run_ranks(three_ranks, [&, made = made, left = left](const RankContext& context) {
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, 3, context.id, context.rank), epcclSuccess);
    ASSERT_EQ(Exchange(context.rank, 3, 10).start(comm), epcclSuccess);
    context.meet();  // what comes may end the others' work
    if (is_revoked(made)) {
      ASSERT_EQ(epcclCommRevoke(comm, EPCCL_REVOKE_DEFAULT), epcclSuccess);
    }
    const bool is_excluded = context.rank == excluded && made != Made::split_of_revoked;
    if (context.rank == leaver) {
      const int waiters = made == Made::split_of_revoked ? 2 : 1;
      for (eventfd_t one = 0, time = 0; time < static_cast<eventfd_t>(waiters); ++time)
        ASSERT_EQ(eventfd_read(waiting.get(), &one), 0);
      EXPECT_EQ(left == Left::aborted ? epcclCommAbort(comm) : epcclCommDestroy(comm), epcclSuccess);
      context.meet();
      return;
    }
    if (!is_excluded) {
      std::thread teller([&waiting, caller = gettid()] {
        wait_until_asleep(caller);
        EXPECT_EQ(eventfd_write(waiting.get(), 1), 0);
      });
      epcclComm_t rest = nullptr;
      EXPECT_EQ(make(made, comm, &rest), epcclRemoteError);
      EXPECT_THAT(epcclGetLastError(nullptr), testing::HasSubstr("will not come: rank 2 (host "));
      EXPECT_EQ(rest, nullptr);
      teller.join();
    }
    context.meet();
    EXPECT_EQ(is_excluded ? epcclCommDestroy(comm) : epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
