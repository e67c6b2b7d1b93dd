// Calls whose threads wait for them, so that nothing waits in their streams: a driver that waits for all streams, and lets nobody in
// meanwhile, then waits for none of the library's. (A double does so with FAKE_CUDA_CONTEXT_LOCK.)
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "../api/asleep.hpp"
#include "graph_rank.hpp"

namespace epccl::tests {
namespace {

using ::testing::ElementsAre;
using Environment = std::vector<std::pair<std::string, std::string>>;
using Clock = std::chrono::steady_clock;

// If the library were kept out it would take so long, and the call fail.
constexpr int stuck_seconds = 40;

Environment with_first_calls(const char* number) {
  return {{"FAKE_CUDA_CONTEXT_LOCK", "1"},
          {"EPCCL_CUDA_STUCK", std::to_string(stuck_seconds)},
          {"EPCCL_CUDA_FIRST_CALLS", number}};
}

/// As loading a module does: waits for all streams of the GPU.
void wait_for_the_gpu_in_the_driver(CUdeviceptr memory) {
  MUST(cuMemFree(memory));
}

/// `call` on two ranks, of which one comes later; each has its driver wait for the GPU at once behind it. Three times.
template <typename Call>
void expect_room_behind(const Environment& environment, const Call& call) {
  run_gpu_ranks(RanksAre::processes, 2, environment, [&](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    for (int round = 0; round < 3; ++round) {
      const GpuArray<int> input(gpu,
                                std::vector<int>{10 * context.rank + round, 10 * context.rank + 5 + round});
      const GpuArray<int> output(gpu, std::vector<int>{-1, -1});
      CUdeviceptr freed = 0;
      MUST(cuMemAlloc(&freed, 4096));
      const auto began = Clock::now();
      if (context.rank == 1) usleep(100'000);
      call(comm, gpu, context.rank, input.data(), output.data());
      wait_for_the_gpu_in_the_driver(freed);
      EXPECT_THAT(output.get(), ElementsAre(5 * context.rank + round, 10 + 5 * context.rank + round));
      EXPECT_LT(std::chrono::duration<double>(Clock::now() - began).count(), stuck_seconds / 2.0);
      context.meet();
    }
  });
}

TEST(FirstCalls, AreOverWhenTheyReturn) {
  expect_room_behind(with_first_calls("3"), [](epcclComm_t comm, const GpuRank& gpu, int, int* in, int* out) {
    EXPECT_EQ(epcclAlltoall(in, out, 1, epcclInt32, comm, gpu.as_epccl()), epcclSuccess);
  });
}

// As PyTorch's backend makes its communicators: polled until they are there, and then used like any other.
TEST(FirstCalls, AreWaitedForOnANonblockingCommunicatorThatIsToldSo) {
  run_gpu_ranks(RanksAre::processes, 2, with_first_calls("3"), [](const RankContext& context) {
    const GpuRank gpu;
    epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.firstCalls = 1;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRankConfig(&comm, context.ranks, context.id, context.rank, &config),
              epcclInProgress);
    epcclResult_t state = epcclInProgress;
    while (state == epcclInProgress) {
      ASSERT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
      usleep(1000);
    }
    const GpuArray<int> input(gpu, std::vector<int>{10 * context.rank, 10 * context.rank + 5}),
        output(gpu, 2);
    CUdeviceptr freed = 0;
    MUST(cuMemAlloc(&freed, 4096));
    if (context.rank == 1) usleep(100'000);
    EXPECT_EQ(epcclAlltoall(input.data(), output.data(), 1, epcclInt32, comm, gpu.as_epccl()), epcclSuccess);
    wait_for_the_gpu_in_the_driver(freed);
    EXPECT_THAT(output.get(), ElementsAre(5 * context.rank, 10 + 5 * context.rank));
    context.meet();
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

TEST(FirstCalls, EndWhenTheirCommunicatorIsAborted) {
  run_gpu_ranks(RanksAre::processes, 2, with_first_calls("3"), [](const RankContext& context) {
    const GpuRank gpu;
    Comm comm(context);
    const GpuArray<int> input(gpu, std::vector<int>{1, 2}), output(gpu, 2);
    if (context.rank == 0) {  // the other one never calls
      std::thread aborts([&, caller = gettid()] {
        wait_until_asleep(caller);
        EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
      });
      const auto began = Clock::now();
      EXPECT_EQ(epcclAlltoall(input.data(), output.data(), 1, epcclInt32, comm, gpu.as_epccl()),
                epcclSuccess);
      EXPECT_LT(std::chrono::duration<double>(Clock::now() - began).count(), stuck_seconds / 2.0);
      aborts.join();
    }
    context.meet();
    if (context.rank == 1) {
      EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    }
    comm.forget();
    gpu.wait();
  });
}

TEST(FirstCalls, OfAGroupAreOverAtItsEnd) {
  expect_room_behind(
      with_first_calls("12"), [](epcclComm_t comm, const GpuRank& gpu, int, const int* in, int* out) {
        ASSERT_EQ(epcclGroupStart(), epcclSuccess);
        for (int peer = 0; peer < 2; ++peer) {
          EXPECT_EQ(epcclSend(in + peer, 1, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
          EXPECT_EQ(epcclRecv(out + peer, 1, epcclInt32, peer, comm, gpu.as_epccl()), epcclSuccess);
        }
        EXPECT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
      });
}

// The first communicator's calls are past that, and would leave the stream waiting.
TEST(FirstCalls, OfTheSecondCommunicatorOfAGroupAreOverAtItsEnd) {
  run_gpu_ranks(RanksAre::processes, 2, with_first_calls("1"), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    epcclComm_t other = nullptr;
    ASSERT_EQ(epcclCommSplit(comm, 0, context.rank, &other, nullptr), epcclSuccess);
    const GpuArray<int> input(gpu, std::vector<int>{10 * context.rank, 10 * context.rank + 5});
    const GpuArray<int> first(gpu, std::vector<int>{-1, -1}), second(gpu, std::vector<int>{-1, -1});
    const auto call = [&](epcclComm_t of, const GpuArray<int>& output) {
      EXPECT_EQ(epcclAlltoall(input.data(), output.data(), 1, epcclInt32, of, gpu.as_epccl()), epcclSuccess);
    };
    call(comm, first);
    CUdeviceptr freed = 0;
    MUST(cuMemAlloc(&freed, 4096));
    context.meet();
    const auto began = Clock::now();
    if (context.rank == 1) usleep(100'000);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    call(comm, first);
    call(other, second);
    EXPECT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
    wait_for_the_gpu_in_the_driver(freed);
    for (const auto* output : {&first, &second})
      EXPECT_THAT(output->get(), ElementsAre(5 * context.rank, 10 + 5 * context.rank));
    EXPECT_LT(std::chrono::duration<double>(Clock::now() - began).count(), stuck_seconds / 2.0);
    context.meet();
    EXPECT_EQ(epcclCommDestroy(other), epcclSuccess);
  });
}

TEST(FirstCalls, AreAllOnTheNullStream) {
  expect_room_behind(with_first_calls("1"), [](epcclComm_t comm, const GpuRank& gpu, int, int* in, int* out) {
    gpu.wait();  // the stream in which the input was written
    EXPECT_EQ(epcclAlltoall(in, out, 1, epcclInt32, comm, nullptr), epcclSuccess);
  });
}

// Nothing but the calls' own order tells that the second sees what the first has brought.
TEST(FirstCalls, ComeInTheirStreamsOrder) {
  run_gpu_ranks(RanksAre::processes, 2, with_first_calls("1"), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    constexpr size_t block = 100'000;
    const GpuArray<int> first(gpu, std::vector<int>(2 * block, context.rank)), second(gpu, 2 * block),
        third(gpu, 2 * block);
    EXPECT_EQ(epcclAlltoall(first.data(), second.data(), block, epcclInt32, comm, gpu.as_epccl()),
              epcclSuccess);
    EXPECT_EQ(epcclAlltoall(second.data(), third.data(), block, epcclInt32, comm, gpu.as_epccl()),
              epcclSuccess);
    std::vector<int> expected(2 * block, context.rank);
    EXPECT_EQ(third.get(), expected);
  });
}

}  // namespace
}  // namespace epccl::tests
