// A process that forks beside its communicators: they stay the parent's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

/// Whether the child's `work` says so and its end, regular, with destructors of static objects, is one, too.
bool in_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) exit(work() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0;
}

bool sums(epcclComm_t comm, int64_t mine, int64_t all, epcclStream_t stream = nullptr) {
  int64_t sum = 0;
  return epcclAllReduce(&mine, &sum, 1, epcclInt64, epcclSum, comm, stream) == epcclSuccess &&
         epcclStreamSynchronize(stream) == epcclSuccess && sum == all;
}

class Forks : public testing::TestWithParam<std::vector<int>> {};

TEST_P(Forks, LeaveEverythingToTheParentHoweverTheChildEnds) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    epcclStream_t stream = nullptr;
    epcclEvent_t event = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    ASSERT_EQ(epcclEventCreate(&event), epcclSuccess);
    const int64_t all = context.ranks * (context.ranks + 1) / 2;
    ASSERT_TRUE(sums(comm, context.rank + 1, all, stream));
    EXPECT_TRUE(in_child([&] {
      return epcclCommDestroy(comm) == epcclInvalidArgument && epcclCommAbort(comm) == epcclInvalidArgument &&
             epcclStreamDestroy(stream) == epcclInvalidArgument &&
             epcclEventDestroy(event) == epcclInvalidArgument;
    }));
    EXPECT_TRUE(sums(comm, context.rank + 1, all, stream));
    EXPECT_EQ(epcclEventDestroy(event), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

TEST_P(Forks, GiveTheChildCommunicatorsOfItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer lets a child of several threads start none";
#endif
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    EXPECT_TRUE(in_child([&] {
      epcclUniqueId id;
      epcclComm_t own = nullptr;
      epcclStream_t stream = nullptr;
      return epcclGetUniqueId(&id) == epcclSuccess && epcclCommInitRank(&own, 1, id, 0) == epcclSuccess &&
             own != comm && epcclStreamCreate(&stream) == epcclSuccess && sums(own, 7, 7, stream) &&
             epcclStreamDestroy(stream) == epcclSuccess && epcclCommDestroy(own) == epcclSuccess;
    }));
    EXPECT_TRUE(sums(comm, 1, context.ranks));
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Forks, testing::Values(std::vector{2}, std::vector{1, 1}));

}  // namespace
}  // namespace epccl::tests
