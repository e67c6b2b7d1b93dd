// Ranks that are given up: a call that blocks is aborted from another thread, a rank that was killed is shrunk away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <ostream>
#include <string>
#include <vector>

#include "blocked_call.hpp"
#include "ranks.hpp"

namespace nccl_programs {
namespace {

class BlockedCalls : public testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, BlockedCalls,
                         testing::Values(Job{As::processes, 2}, Job{As::processes, 5}, Job{As::processes, 16},
                                         Job{As::processes, 6, 3}, Job{As::threads, 2}, Job{As::threads, 5},
                                         Job{As::threads, 16}),
                         testing::PrintToStringParamName());

/// Ranks that are in no call hear of it as well.
void expect_to_hear_of_rank_0(ncclComm_t comm) {
  EXPECT_EQ(awaited_failure(comm), ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(comm), testing::HasSubstr("rank 0"));
}

// Rank 0 waits for what no rank sends.
TEST_P(BlockedCalls, AReceiveEndsWhenAnotherThreadAborts) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    tell_all(comm, 1);
    context.meet();
    if (context.rank > 0) return expect_to_hear_of_rank_0(comm);
    int number = 0;
    BlockedCall receive([&] { return ncclRecv(&number, 1, ncclInt32, 1, comm, nullptr); });
    NCCL_OK(ncclCommAbort(comm));
    EXPECT_EQ(receive.result(), ncclRemoteError);
    EXPECT_THAT(receive.text(), testing::HasSubstr("aborted"));
    comm.forget();
  });
}

// All ranks but the last are in it, the last one never calls.
TEST_P(BlockedCalls, ACollectiveEndsOnEveryRankWhenOneOfThemAborts) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    tell_all(comm, 1);
    if (context.rank == context.ranks - 1) {
      context.meet();
      return expect_to_hear_of_rank_0(comm);
    }
    int number = 1;
    BlockedCall sum([&] { return ncclAllReduce(&number, &number, 1, ncclInt32, ncclSum, comm, nullptr); });
    context.meet();  // all that call are blocked
    if (context.rank == 0) {
      NCCL_OK(ncclCommAbort(comm));
      comm.forget();
    }
    EXPECT_EQ(sum.result(), ncclRemoteError);
    EXPECT_THAT(sum.text(), testing::HasSubstr(context.rank == 0 ? "aborted" : "rank 0"));
  });
}

/// A job of processes, and whom it loses.
struct Loss {
  Job job;
  int dead;
};
std::ostream& operator<<(std::ostream& out, const Loss& loss) {
  return out << loss.job << "WithoutRank" << loss.dead;
}

class LostRanks : public testing::TestWithParam<Loss> {};
// The process of rank 0 made the id, and tells the others of deaths.
INSTANTIATE_TEST_SUITE_P(Deaths, LostRanks,
                         testing::Values(Loss{{As::processes, 3}, 1}, Loss{{As::processes, 3}, 0},
                                         Loss{{As::processes, 8}, 7}, Loss{{As::processes, 8, 4}, 5},
                                         Loss{{As::processes, 16}, 9}, Loss{{As::processes, 16}, 0}),
                         testing::PrintToStringParamName());

TEST_P(LostRanks, ARankThatDiedIsShrunkAway) {
  Job job = GetParam().job;
  job.may_die = {GetParam().dead};
  run_ranks(job, [dead = GetParam().dead](const RankContext& context) {
    Comm comm(context);
    tell_all(comm, context.rank);
    context.meet();
    if (context.rank == dead) raise(SIGKILL);
    const std::vector<int> in(static_cast<size_t>(context.ranks));
    std::vector<int> out(in.size()), survivors;
    EXPECT_EQ(ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, nullptr), ncclRemoteError);
    EXPECT_THAT(ncclGetLastError(comm), testing::HasSubstr("rank " + std::to_string(dead)));
    int excluded = dead;
    ncclComm_t rest = nullptr;
    NCCL_OK(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
    for (int rank = 0; rank < context.ranks; ++rank)
      if (rank != dead) survivors.push_back(rank);
    EXPECT_EQ(tell_all(rest, context.rank), survivors);
    NCCL_OK(ncclCommDestroy(rest));
    NCCL_OK(ncclCommAbort(comm));
    comm.forget();
  });
}

}  // namespace
}  // namespace nccl_programs
