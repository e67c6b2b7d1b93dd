// Where the time of calls goes (epccl/profile.h).
#include "epccl/profile.h"

#include <gtest/gtest.h>

#include <vector>

#include "call_times.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

void measure(epcclComm_t comm, int on) {
  EXPECT_EQ(epcclCommMeasureCalls(comm, on), epcclSuccess) << epcclGetLastError(comm);
}

void expect_parts_to_add_up(const epcclCallTimes_t& times) {
  constexpr double rounding = 1e-6;
  EXPECT_GT(times.total, 0);
  for (const double part : {times.kernel, times.copy, times.signal, times.host}) EXPECT_GE(part, -rounding);
  EXPECT_NEAR(times.kernel + times.copy + times.signal + times.host, times.total, rounding);
}

/// SharedBuffers that all ranks map.
struct SharedBuffers {
  static constexpr size_t count = 30'000;  // from and to each rank
  explicit SharedBuffers(int ranks) {
    const size_t bytes = count * static_cast<size_t>(ranks) * sizeof(float);
    EXPECT_EQ(epcclMemAlloc(&input, bytes), epcclSuccess);
    EXPECT_EQ(epcclMemAlloc(&output, bytes), epcclSuccess);
    std::fill_n(static_cast<float*>(input), count * static_cast<size_t>(ranks), 1.0F);
  }
  SharedBuffers(const SharedBuffers&) = delete;
  SharedBuffers& operator=(const SharedBuffers&) = delete;
  ~SharedBuffers() {
    EXPECT_EQ(epcclMemFree(input), epcclSuccess);
    EXPECT_EQ(epcclMemFree(output), epcclSuccess);
  }
  void* input = nullptr;
  void* output = nullptr;
};

/// On one node and on two.
class Profile : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Profile, ::testing::Values(std::vector<int>{3}, std::vector<int>{2, 2}));

TEST_P(Profile, CallsThatAreMeasuredAreCountedAndTheirPartsAddUp) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    SharedBuffers buffers(context.ranks);
    const auto call = [&] {
      EXPECT_EQ(
          epcclAlltoall(buffers.input, buffers.output, SharedBuffers::count, epcclFloat32, comm, nullptr),
          epcclSuccess);
    };
    call();
    EXPECT_EQ(times_of(comm).calls, 0U) << "nobody measured";
    measure(comm, 1);
    for (int i = 0; i < 3; ++i) call();
    const epcclCallTimes_t first = times_of(comm);
    EXPECT_EQ(first.calls, 3U);
    EXPECT_EQ(first.kernel, 0);
    expect_parts_to_add_up(first);
    EXPECT_EQ(times_of(comm).calls, 0U) << "since it was asked last";
    call();
    measure(comm, 0);
    call();
    EXPECT_EQ(times_of(comm).calls, 1U);
  });
}

TEST_P(Profile, AStreamsCallsAreMeasuredInTheirThread) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    SharedBuffers buffers(context.ranks);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    measure(comm, 1);
    EXPECT_EQ(epcclAllReduce(buffers.input, buffers.output, SharedBuffers::count, epcclFloat32, epcclSum,
                             comm, stream),
              epcclSuccess);
    const epcclCallTimes_t times = times_of(comm);  // waits for the call
    EXPECT_EQ(times.calls, 1U);
    expect_parts_to_add_up(times);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

TEST(ProfileOfEngines, CopiesAreTheEnginesAndSumsTheWorkers) {
  run_ranks({{3}, {{"EPCCL_COPY_ENGINE", "always"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    SharedBuffers buffers(context.ranks);
    measure(comm, 1);
    EXPECT_EQ(epcclAlltoall(buffers.input, buffers.output, SharedBuffers::count, epcclFloat32, comm, nullptr),
              epcclSuccess);
    const epcclCallTimes_t copied = times_of(comm);
    EXPECT_GT(copied.copy, 0);
    EXPECT_EQ(copied.kernel, 0);
    expect_parts_to_add_up(copied);
    EXPECT_EQ(epcclAllReduce(buffers.input, buffers.output, SharedBuffers::count, epcclFloat32, epcclSum,
                             comm, nullptr),
              epcclSuccess);
    const epcclCallTimes_t added = times_of(comm);
    EXPECT_GT(added.kernel, 0);
    expect_parts_to_add_up(added);
  });
}

// Cores run the plan there, and engines make its large copies.
TEST(ProfileOfEngines, LargeCopiesWithinEachOfSeveralNodesAreTheEngines) {
  run_ranks({{2, 2}, {{"EPCCL_COPY_ENGINE", "always"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    SharedBuffers buffers(context.ranks);
    const auto measured = [&](size_t count) {
      measure(comm, 1);
      EXPECT_EQ(epcclAlltoall(buffers.input, buffers.output, count, epcclFloat32, comm, nullptr),
                epcclSuccess);
      const epcclCallTimes_t times = times_of(comm);
      EXPECT_EQ(times.calls, 1U);
      expect_parts_to_add_up(times);
      return times;
    };
    EXPECT_GT(measured(SharedBuffers::count).copy, 0);
    EXPECT_EQ(measured(100).copy, 0) << "not worth an engine";
  });
}

TEST(ProfileOfFaults, AStructThatWasNotSetUpIsRefused) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    EXPECT_EQ(epcclCommGetCallTimes(comm, nullptr), epcclInvalidArgument);
    epcclCallTimes_t times{};
    EXPECT_EQ(epcclCommGetCallTimes(comm, &times), epcclInvalidArgument);
    EXPECT_EQ(epcclCommMeasureCalls(nullptr, 1), epcclInvalidArgument);
  });
}

}  // namespace
}  // namespace epccl::tests
