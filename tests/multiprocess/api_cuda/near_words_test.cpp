// Ranks that share a GPU which does their work at once: their queues wait for each other by kernels, which look into the GPU's memory
// (device::WordValue::near).
#include <gmock/gmock.h>

#include "device/kernels/launch.hpp"
#include "drawn_calls.hpp"
#include "fake_driver.hpp"
#include "graph_rank.hpp"

namespace epccl::tests {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

constexpr int ranks = 3;
constexpr size_t block = 1000;
const Environment held{{"EPCCL_CUDA_FIRST_CALLS", "0"}};

Environment and_held(const Environment& more) {
  Environment both = held;
  both.insert(both.end(), more.begin(), more.end());
  return both;
}
const Environment mps = and_held({{"FAKE_CUDA_MPS", "1"}});

std::vector<int> blocks_of(int rank) {
  std::vector<int> values;
  for (int peer = 0; peer < ranks; ++peer) values.insert(values.end(), block, 10 * rank + peer);
  return values;
}

std::vector<int> transposed(int rank) {
  std::vector<int> values;
  for (int peer = 0; peer < ranks; ++peer) values.insert(values.end(), block, 10 * peer + rank);
  return values;
}

void expect_alltoalls(int rounds, const RankContext& context, epcclComm_t comm, const GpuRank& gpu,
                      const GpuArray<int>& input, const GpuArray<int>& output) {
  for (int round = 0; round < rounds; ++round) {
    EXPECT_EQ(epcclAlltoall(input.data(), output.data(), block, epcclInt32, comm, gpu.as_epccl()),
              epcclSuccess)
        << epcclGetLastError(nullptr);
    EXPECT_EQ(output.get(), transposed(context.rank));
  }
}

class NearWords : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::kernels::bytes_of(device::kernels::Image::signals).empty())
      GTEST_SKIP() << "built without CUDA kernels";
  }

  /// An alltoall of ranks on `gpus` GPUs in turns; `kernels` says whether any are counted in this process.
  static void expect_kernels(RanksAre ranks_are, const Environment& environment, bool kernels, int gpus = 1) {
    run_gpu_ranks(ranks_are, ranks, environment, [&](const RankContext& context) {
      const GpuRank gpu(context.rank % gpus);
      const Comm comm(context);
      const GpuArray<int> input(gpu, blocks_of(context.rank)), output(gpu, input.get().size());
      expect_alltoalls(3, context, comm, gpu, input, output);
      context.meet();
      EXPECT_EQ(fake_cuda_calls("epccl_words") > 0, kernels);
    });
  }
};

TEST_F(NearWords, AreWhereQueuesOfThreadsLook) {
  expect_kernels(RanksAre::threads, held, true);
}

TEST_F(NearWords, AreWhereQueuesOfProcessesLookThatMpsServes) {
  expect_kernels(RanksAre::processes, mps, true);
}

TEST_F(NearWords, AreNotForProcessesThatTakeTurns) {
  expect_kernels(RanksAre::processes, held, false);
}

TEST_F(NearWords, AreNotForRanksWithGpusOfTheirOwn) {
  expect_kernels(RanksAre::threads, and_held({{"FAKE_CUDA_DEVICES", "3"}}), false, 3);
}

// The streams that such a call's queues wait for may have a kernel to run that needs all of the GPU.
TEST_F(NearWords, AreNotForCallsThatAreQueuedBehindTheirStreams) {
  expect_kernels(RanksAre::threads, {{"EPCCL_CUDA_FIRST_CALLS", "1000"}}, false);
}

// Or the first call whose stream is held would map it: a driver may keep that out.
TEST_F(NearWords, AreMappedBeforeTheFirstCallThatLooksAtThem) {
  Environment two = mps;
  two.front().second = "2";
  run_gpu_ranks(RanksAre::processes, ranks, two, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const GpuArray<int> input(gpu, blocks_of(context.rank)), output(gpu, input.get().size());
    expect_alltoalls(2, context, comm, gpu, input, output);
    context.meet();
    EXPECT_EQ(fake_cuda_calls("epccl_words"), 0);
    fake_cuda_forget_calls();
    expect_alltoalls(1, context, comm, gpu, input, output);
    EXPECT_GT(fake_cuda_calls("epccl_words"), 0);
    EXPECT_EQ(fake_cuda_calls("cuMemMap"), 0);
    context.meet();
  });
}

// Such a GPU ends a kernel that waits too long.
TEST_F(NearWords, AreNotForGpusThatHaveALimitForKernels) {
  expect_kernels(RanksAre::threads, and_held({{"FAKE_CUDA_LONG_KERNELS_END", "1"}}), false);
}

// Memory that CUDA IPC shares may not be looked at when its owner has freed it.
TEST_F(NearWords, AreNotForProcessesThatShareMemoryByCudaIpc) {
  expect_kernels(RanksAre::processes, and_held({{"FAKE_CUDA_MPS", "1"}, {"EPCCL_CUDA_SHARE", "ipc"}}), false);
}

TEST_F(NearWords, AreNotForWhoDoesNotWantThem) {
  expect_kernels(RanksAre::threads, and_held({{"EPCCL_CUDA_SIGNALS", "driver"}}), false);
}

// A kernel of such a process may hold up a thread that is to post.
TEST_F(NearWords, AreNotForProgramsWhoseLaunchesBlock) {
  expect_kernels(RanksAre::threads, and_held({{"CUDA_LAUNCH_BLOCKING", "1"}}), false);
  expect_kernels(RanksAre::threads, and_held({{"CUDA_LAUNCH_BLOCKING", "0"}}), true);
}

// Two ranks on one GPU, and one on another, whose words these find in the host's memory.
TEST_F(NearWords, AreForThoseOfTheRanksThatShareAGpu) {
  expect_kernels(RanksAre::threads, and_held({{"FAKE_CUDA_DEVICES", "2"}}), true, 2);
}

// Each rank decides for itself: one that does not want them raises none, and the others find its words in the host's memory.
TEST_F(NearWords, MayBeLookedAtBySomeRanksOnly) {
  run_gpu_ranks(RanksAre::processes, ranks, mps, [](const RankContext& context) {
    if (context.rank == 1) setenv("EPCCL_CUDA_SIGNALS", "driver", 1);
    const GpuRank gpu;
    const Comm comm(context);
    const GpuArray<int> input(gpu, blocks_of(context.rank)), output(gpu, input.get().size());
    expect_alltoalls(5, context, comm, gpu, input, output);
    context.meet();
    EXPECT_EQ(fake_cuda_calls("epccl_words") > 0, context.rank != 1);
  });
}

TEST_F(NearWords, CarryCallsDrawnAtRandom) {
  const uint64_t seed = drawn_seed();
  run_ranks({{4}, mps, {}}, [&](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 24 && !::testing::Test::HasFailure(); ++round) {
      constexpr std::array kinds{Drawn::alltoall,  Drawn::alltoallv,      Drawn::allgather,
                                 Drawn::allreduce, Drawn::reduce_scatter, Drawn::broadcast};
      const DrawnCall call(kinds[random() % kinds.size()], random, context.ranks, 20'000);
      expect_the_hosts_bytes(call, context, comm, gpu, GpuMemoryKind::plain);
    }
  });
}

// Its peers' kernels may not have looked yet when a rank's own call is over: the double ends the program where they look at what was freed
// (which is rare: DeviceScratch's tests say who holds it).
TEST_F(NearWords, OfARankThatHasGoneAreThereStill) {
  epcclUniqueId id{};
  run_gpu_ranks(RanksAre::threads, ranks, held, [&id](const RankContext& context) {
    const GpuRank gpu;
    const GpuArray<int> input(gpu, blocks_of(context.rank)), output(gpu, input.get().size());
    for (int round = 0; round < 20; ++round) {
      if (context.rank == 0) {
        EXPECT_EQ(epcclGetUniqueId(&id), epcclSuccess);
      }
      context.meet();
      {
        RankContext anew = context;
        anew.id = id;
        const Comm comm(anew);
        EXPECT_EQ(epcclAlltoall(input.data(), output.data(), block, epcclInt32, comm, gpu.as_epccl()),
                  epcclSuccess)
            << epcclGetLastError(nullptr);
        MUST(cuStreamSynchronize(gpu.stream()));
      }
      context.meet();
    }
    EXPECT_EQ(output.get(), transposed(context.rank));
  });
}

}  // namespace
}  // namespace epccl::tests
