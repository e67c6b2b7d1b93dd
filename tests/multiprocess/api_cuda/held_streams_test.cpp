// While a stream waits for a call, a driver may be busy in a call of another thread that waits for the whole GPU, and let no other in. The
// double does so here (context_lock.hpp).
#include <gmock/gmock.h>

#include <barrier>
#include <chrono>
#include <string>
#include <thread>

#include "fake_driver.hpp"
#include "freeing.hpp"
#include "gate.hpp"
#include "graph_rank.hpp"
#include "numbered_alltoalls.hpp"

namespace epccl::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Environment = std::vector<std::pair<std::string, std::string>>;

// From the first call on.
const Environment::value_type streams_wait{"EPCCL_CUDA_FIRST_CALLS", "0"};

void run_locked(int ranks, Environment environment, const std::function<void(const RankContext&)>& body) {
  environment.emplace_back("FAKE_CUDA_CONTEXT_LOCK", "1");
  environment.push_back(streams_wait);
  run_gpu_ranks(RanksAre::threads, ranks, environment, body);
}

/// An alltoall of one rank behind a gate.
struct Call {
  explicit Call(const GpuRank& gpu) : input(gpu, std::vector<int>{7}), output(gpu, std::vector<int>{0}) {}
  void issue(epcclComm_t comm, const GpuRank& gpu) const {
    ASSERT_EQ(epcclAlltoall(input.data(), output.data(), 1, epcclInt32, comm, gpu.as_epccl()), epcclSuccess);
  }
  const GpuArray<int> input, output;
};

// Peers have open what was there. To close it waits for the GPU, whose stream waits for the call.
TEST(HeldStreams, WaitForNoMemoryThatWasAllocatedWhereOtherWas) {
  const Environment environment{{"FAKE_CUDA_CONTEXT_LOCK", "1"}, {"EPCCL_CUDA_STUCK", "12"}, streams_wait};
  run_gpu_ranks(RanksAre::processes, 2, environment, [](const RankContext& context) {
    fake_cuda_set("reuse", 1);
    const GpuRank gpu;
    const Comm comm(context);
    for (int round = 0; round < 4; ++round) {
      const std::vector<int> mine{100 * context.rank + round, 100 * context.rank + 10 + round};
      const GpuArray<int> input(gpu, mine), output(gpu, 2);
      ASSERT_EQ(epcclAlltoall(input.data(), output.data(), 1, epcclInt32, comm, gpu.as_epccl()),
                epcclSuccess);
      EXPECT_THAT(output.get(), ElementsAre(10 * context.rank + round, 100 + 10 * context.rank + round));
      context.meet();
    }
    fake_cuda_set("reuse", 0);
  });
}

// Once they have closed what was there, which they do when nothing waits, they open what is there now.
TEST(HeldStreams, LeaveMemoryThatWasAllocatedWhereOtherWasStagedForAWhileOnly) {
  const Environment environment{{"FAKE_CUDA_CONTEXT_LOCK", "1"}, {"EPCCL_CUDA_STUCK", "12"}, streams_wait};
  run_gpu_ranks(RanksAre::processes, 2, environment, [](const RankContext& context) {
    fake_cuda_set("reuse", 1);
    const GpuRank gpu;
    const Comm comm(context);
    const auto exchange = [&](int value) {
      const GpuArray<int> input(gpu, std::vector<int>(2, value)), output(gpu, 2);
      EXPECT_EQ(epcclAlltoall(input.data(), output.data(), 1, epcclInt32, comm, gpu.as_epccl()),
                epcclSuccess);
      return output.get();
    };
    EXPECT_THAT(exchange(context.rank), ElementsAre(0, 1));
    context.meet();
    GpuArray<int> input(gpu, 2);
    const GpuArray<int> output(gpu, 2);
    const auto opened = [] { return fake_cuda_calls("cuIpcOpenMemHandle_v2"); };
    const long before = opened();
    ASSERT_GT(before, 0);
    // Each tells both whether it has opened anything: they end together. The test's timeout ends what does not.
    std::vector<int> mine(2), have(2);
    while (have != std::vector<int>{1, 1}) {
      mine.assign(2, opened() > before ? 1 : 0);
      input.put(mine);
      ASSERT_EQ(epcclAlltoall(input.data(), output.data(), 1, epcclInt32, comm, gpu.as_epccl()),
                epcclSuccess);
      have = output.get();
    }
    fake_cuda_set("reuse", 0);
  });
}

// The rank that owns the memory has left the communicator, its peer has not, and has it open.
TEST(HeldStreams, WaitForNoMemoryThatWasAllocatedWhereOtherWasThatAnotherCommunicatorHasOpen) {
  const Environment environment{{"FAKE_CUDA_CONTEXT_LOCK", "1"}, {"EPCCL_CUDA_STUCK", "12"}, streams_wait};
  run_gpu_ranks(RanksAre::processes, 2, environment, [](const RankContext& context) {
    fake_cuda_set("reuse", 1);
    const GpuRank gpu;
    auto other = std::make_unique<Comm>(context);
    epcclComm_t split = nullptr;
    ASSERT_EQ(epcclCommSplit(*other, 0, context.rank, &split, nullptr), epcclSuccess);
    const auto exchange = [&](epcclComm_t comm) {
      const GpuArray<int> input(gpu, std::vector<int>(2, context.rank)), output(gpu, 2);
      EXPECT_EQ(epcclAlltoall(input.data(), output.data(), 1, epcclInt32, comm, gpu.as_epccl()),
                epcclSuccess);
      EXPECT_THAT(output.get(), ElementsAre(0, 1));
    };
    exchange(*other);
    context.meet();
    if (context.rank == 0) other.reset();
    for (int round = 0; round < 10; ++round) exchange(split);
    context.meet();
    EXPECT_EQ(epcclCommDestroy(split), epcclSuccess);
    fake_cuda_set("reuse", 0);
  });
}

// The stream has work for longer than the timeout before it comes to the call: that alone is no failure.
TEST(HeldStreams, AreLetGoWhenAThreadKeepsTheCallOutOfTheDriver) {
  run_locked(1, {}, [](const RankContext& context) {
    const GpuRank gpu;
    Comm comm(context);
    ASSERT_EQ(epcclCommSetTimeout(comm, 0.3), epcclSuccess);
    const Call call(gpu);
    const Gate gate;
    gate.close(gpu);
    call.issue(comm, gpu);
    {
      const Freeing other_thread;
      std::this_thread::sleep_for(std::chrono::milliseconds(1200));
      epcclResult_t state = epcclSuccess;
      EXPECT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
      EXPECT_EQ(state, epcclSuccess) << epcclGetLastError(comm);
      gate.open();
    }
    gpu.wait();
    EXPECT_EQ(wait_for_failure(comm), epcclRemoteError);
    EXPECT_THAT(epcclGetLastError(comm),
                HasSubstr("a stream of the GPU waits for a call whose thread has been in cu"));
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
  });
}

// A communicator may wait for its peers for half an hour; no call of a driver takes so long.
TEST(HeldStreams, AreLetGoLongBeforeTheCommunicatorsTimeout) {
  run_locked(1, {{"EPCCL_CUDA_STUCK", "0.2"}}, [](const RankContext& context) {
    const GpuRank gpu;
    Comm comm(context);
    ASSERT_EQ(epcclCommSetTimeout(comm, 1800), epcclSuccess);
    const Call call(gpu);
    const Gate gate;
    gate.close(gpu);
    call.issue(comm, gpu);
    {
      const Freeing other_thread;
      gate.open();
    }
    EXPECT_EQ(wait_for_failure(comm), epcclRemoteError);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
  });
}

// What says that the stream has come is a word in host memory: the driver, which others need too, is asked now and then for what the word
// cannot tell.
TEST(HeldStreams, AreWaitedForWithoutAskingTheDriverAllTheTime) {
  run_gpu_ranks(RanksAre::threads, 1, {streams_wait}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const Call call(gpu);
    const Gate gate;
    gate.close(gpu);
    fake_cuda_forget_calls();
    const auto began = std::chrono::steady_clock::now();
    call.issue(comm, gpu);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const long asked = fake_cuda_calls("cuEventQuery");
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began;
    EXPECT_LT(static_cast<double>(asked), 100 + 200 * passed.count());
    gate.open();
    gpu.wait();
    EXPECT_EQ(call.output.get(), std::vector<int>{7});
  });
}

TEST(HeldStreams, DoNotKeepACommunicatorFromEnding) {
  run_locked(1, {}, [](const RankContext& context) {
    const GpuRank gpu;
    epcclComm_t ends = nullptr;
    ASSERT_EQ(epcclCommInitAll(&ends, 1, nullptr), epcclSuccess);
    const Comm works(context);
    const Call first(gpu), second(gpu);
    first.issue(ends, gpu);
    gpu.wait();
    const long pinned = fake_cuda_live("pinned"), registered = fake_cuda_live("registered");
    {
      const Gate gate;
      gate.close(gpu);
      second.issue(works, gpu);
      EXPECT_EQ(epcclCommDestroy(ends), epcclSuccess);
      EXPECT_EQ(fake_cuda_live("registered"), registered) << "put off";
      gate.open();
      gpu.wait();
    }
    EXPECT_EQ(second.output.get(), std::vector<int>{7});
    while (fake_cuda_live("registered") == registered || fake_cuda_live("pinned") == pinned)
      std::this_thread::yield();
    EXPECT_LT(fake_cuda_live("pinned"), pinned);
  });
}

TEST(HeldStreams, AreHeldByCallsThatWaitForTheGpuNowhereInTheDriver) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 1}})
    run_ranks({nodes, {{"FAKE_CUDA_CONTEXT_LOCK", "1"}}, {}}, [](const RankContext& context) {
      const GpuRank gpu;
      const Comm comm(context);
      expect_numbered_alltoalls(context, comm, gpu, 700, 3);
    });
}

TEST(HeldStreams, ThatCannotBeHeldAreToldWhenTheirCallsAreThrough) {
  run_locked(1, {}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const Call first(gpu), call(gpu);
    first.issue(comm, gpu);
    gpu.wait();
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    call.issue(comm, gpu);
    fake_cuda_forget_calls();
    fake_cuda_set("copy_pause", 100'000);
    fake_cuda_set("refused_wait", 1);
    EXPECT_EQ(epcclGroupEnd(), epcclUnhandledDeviceError);
    EXPECT_EQ(fake_cuda_calls("bytes inside"), static_cast<long>(sizeof(int)));
    fake_cuda_set("copy_pause", 0);
  });
}

// What calls need of the device is there, however many are under way.
TEST(HeldStreams, AreHeldByManyCallsWhereToAllocateWaitsForTheGpu) {
  run_locked(1, {}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const Call call(gpu);
    call.issue(comm, gpu);
    gpu.wait();
    const Gate gate;
    fake_cuda_set("alone_allocations", 1);
    gate.close(gpu);
    for (int i = 0; i < 300; ++i) call.issue(comm, gpu);
    gate.open();
    gpu.wait();
    fake_cuda_set("alone_allocations", 0);
    EXPECT_EQ(call.output.get(), std::vector<int>{7});
  });
}

// Each frees, unregisters and unmaps while others may still be in their last call.
TEST(HeldStreams, OfRanksThatComeAndGoAreLetGo) {
  constexpr int ranks = 3;
  std::barrier all_through(ranks);
  run_locked(ranks, {}, [&](const RankContext& context) {
    const GpuRank gpu;
    const Exchanged exchanged(context, gpu, 1000);
    {
      const Comm comm(context);
      for (int round = 0; round < 5; ++round)
        ASSERT_EQ(exchanged.call(comm, gpu.as_epccl()), epcclSuccess) << epcclGetLastError(comm);
    }
    all_through.arrive_and_wait();  // memory of the program's own
  });
}

}  // namespace
}  // namespace epccl::tests
