// A rank that ends its communicator, or its program, as it should: no failure to others that wait for nothing, and ask now and then,
// as the watchdogs of frameworks do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "ranks.hpp"

namespace nccl_programs {
namespace {

void add_up(ncclComm_t comm) {
  int sum = 1, ranks = 0;
  NCCL_OK(ncclCommCount(comm, &ranks));
  NCCL_OK(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
  EXPECT_EQ(sum, ranks);
}

/// Long enough for the news of whoever ends meanwhile.
void expect_no_failure(ncclComm_t comm) {
  for (int i = 0; i < 1000; ++i) {
    ncclResult_t state = ncclSuccess;
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    ASSERT_EQ(state, ncclSuccess) << ncclGetLastError(comm);
    usleep(1000);
  }
}

enum class Way { destroys, finalizes_destroys_and_exits, exits, exits_finalized };

struct End {
  Way way;
  int rank;  // whose it is; 0 is that of the process that made the id
};
std::ostream& operator<<(std::ostream& out, const End& end) {
  constexpr std::array names{"Destroys", "FinalizesDestroysAndExits", "Exits", "ExitsFinalized"};
  return out << "Rank" << end.rank << names[static_cast<size_t>(end.way)];
}

void end(Way way, ncclComm_t comm) {
  if (way == Way::finalizes_destroys_and_exits || way == Way::exits_finalized)
    NCCL_OK(ncclCommFinalize(comm));
  if (way == Way::destroys || way == Way::finalizes_destroys_and_exits) NCCL_OK(ncclCommDestroy(comm));
  if (way != Way::destroys) exit(testing::Test::HasFailure() ? 1 : 0);
}

class OrderlyEnd : public testing::TestWithParam<End> {};

TEST_P(OrderlyEnd, IsNoFailureToIdleRanks) {
  run_ranks({As::processes, 3}, [](const RankContext& context) {
    Comm comm(context);
    add_up(comm);
    context.meet();
    if (context.rank == GetParam().rank) {
      end(GetParam().way, comm);
      comm.forget();
    } else {
      expect_no_failure(comm);
    }
  });
}

TEST_P(OrderlyEnd, OfTheParentIsNothingToIdleRanksOfASplit) {
  run_ranks({As::processes, 3}, [](const RankContext& context) {
    Comm comm(context);
    const bool goes = context.rank == GetParam().rank;
    ncclComm_t rest = nullptr;
    NCCL_OK(ncclCommSplit(comm, goes ? NCCL_SPLIT_NOCOLOR : 1, 0, &rest, nullptr));
    context.meet();
    if (goes) {
      end(GetParam().way, comm);
      return comm.forget();
    }
    expect_no_failure(rest);
    add_up(rest);
    NCCL_OK(ncclCommDestroy(rest));
  });
}

// Whether that was as it should be nobody can know: the others wait for it, and it will not come.
TEST(DisorderlyEnd, OfAProgramIsAFailureToThoseWhoNeedItsRank) {
  for (const int goes : {0, 1}) {
    Job job{As::processes, 3};
    run_ranks(job, [&](const RankContext& context) {
      Comm comm(context);
      add_up(comm);
      context.meet();
      if (context.rank == goes) exit(testing::Test::HasFailure() ? 1 : 0);
      int number = 1;
      NCCL_FAILS(context.rank == 2 ? ncclRecv(&number, 1, ncclInt32, goes, comm, nullptr)
                                   : ncclAllReduce(&number, &number, 1, ncclInt32, ncclSum, comm, nullptr),
                 ncclRemoteError, "rank " + std::to_string(goes));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Of, OrderlyEnd,
                         testing::Values(End{Way::destroys, 0}, End{Way::destroys, 1},
                                         End{Way::finalizes_destroys_and_exits, 0},
                                         End{Way::finalizes_destroys_and_exits, 1}, End{Way::exits, 0},
                                         End{Way::exits, 1}, End{Way::exits_finalized, 0},
                                         End{Way::exits_finalized, 1}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace nccl_programs
