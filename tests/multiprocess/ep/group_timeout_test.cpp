// A group's own timeout: its calls give up earlier than the communicator's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

#include "setting.hpp"

namespace epccl::tests {
namespace {

using Clock = std::chrono::steady_clock;

// The last rank stays away until it hears that the others have given up, which is long before the communicator would have.
void expect_timeout(const std::vector<int>& ranks_per_node, bool in_update) {
  run_ranks({ranks_per_node, {{"EPCCL_TIMEOUT", "50"}}, {}}, [&](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.config.timeout_ms = 5000;  // with which all come to an update, however busy the machine is
    setting.make_group();
    context.meet();
    if (!in_update) {
      ASSERT_EQ(setting.make_handle(4, 2), epcclSuccess) << epcclGetLastError(nullptr);
    }
    const std::string silent = "rank " + std::to_string(context.ranks - 1);
    if (context.rank == context.ranks - 1) {
      epcclResult_t failure = epcclSuccess;
      while (failure == epcclSuccess) {
        usleep(1000);
        ASSERT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
      }
    } else {
      const auto start = Clock::now();
      const epcclResult_t result = in_update ? setting.make_handle(4, 2) : setting.dispatch(100, 8);
      EXPECT_EQ(result, epcclRemoteError);
      expect_error(context, result, "timeout: ep");
      expect_error(context, result, silent);
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(25));  // far from 50
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
  });
}

TEST(EpGroupTimeout, EndsADispatchThatWaitsForItsNode) {
  expect_timeout({3}, false);
}
TEST(EpGroupTimeout, EndsADispatchThatWaitsForTheNetwork) {
  expect_timeout({1, 1}, false);
}
TEST(EpGroupTimeout, EndsAnUpdate) {
  expect_timeout({3}, true);
}

TEST(EpGroupTimeout, IsNotThatOfOtherCalls) {
  // The last rank comes to an alltoall only after more than the group's timeout.
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "50"}}, {}}, [&](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.config.timeout_ms = 10'000;
    setting.make_group();
    context.meet();
    ASSERT_EQ(setting.make_handle(4, 2), epcclSuccess);
    ASSERT_EQ(setting.dispatch(100, 8), epcclSuccess);
    if (context.rank == 1) usleep(11'000'000);
    std::vector<int> in(2), out(2);
    EXPECT_EQ(epcclAlltoall(in.data(), out.data(), 1, epcclInt32, comm, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
    setting.destroy();
  });
}

}  // namespace
}  // namespace epccl::tests
