// Sums over several nodes in GPU memory have the bits that they have in host memory.
#include <array>

#include "device/kernels/launch.hpp"
#include "drawn_calls.hpp"
#include "fake_driver.hpp"
#include "traffic.hpp"

namespace epccl::tests {
namespace {

constexpr std::array summing{Drawn::allreduce, Drawn::reduce_scatter, Drawn::reduce};

/// By rank: the GPU that it uses; those that are not named use the first.
using Gpus = std::vector<int>;

int gpu_of(const Gpus& gpus, int rank) {
  return gpus.empty() ? 0 : gpus[static_cast<size_t>(rank)];
}

/// `kinds`: of calls that are drawn.
template <typename Kinds>
void run_drawn(const std::vector<int>& nodes,
               const std::vector<std::pair<std::string, std::string>>& environment, size_t most,
               const Kinds& kinds, const Gpus& gpus = {}) {
  if (device::kernels::bytes_of(device::kernels::Image::reduce).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  const uint64_t seed = drawn_seed();
  run_ranks({nodes, environment, {}}, [&](const RankContext& context) {
    GpuRank gpu(gpu_of(gpus, context.rank));
    const Comm comm(context);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 10; ++round) {
      const DrawnCall call(kinds[random() % kinds.size()], random, context.ranks, most);
      expect_the_hosts_bytes(call, context, comm, gpu, GpuMemoryKind::plain);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

void run_sums(const std::vector<int>& nodes,
              const std::vector<std::pair<std::string, std::string>>& environment, size_t most,
              const Gpus& gpus = {}) {
  run_drawn(nodes, environment, most, summing, gpus);
}

TEST(CudaSumsOfSeveralNodes, HaveTheHostsBits) {
  run_sums({2, 2}, {}, 10'000);
}

TEST(CudaSumsOfSeveralNodes, HaveThemInTinyPieces) {
  run_sums({2, 1, 1},
           {{"EPCCL_CHUNK_SIZE", "512"}, {"EPCCL_STAGE_SIZE", "300"}, {"EPCCL_SCRATCH_SIZE", "20000"}}, 3000);
}

TEST(CudaSumsOfSeveralNodes, HaveThemByFlatPlans) {
  run_sums({1, 2}, {{"EPCCL_ALGO", "flat"}}, 3000);
}

// Where a node's ranks share a GPU their sums read what lies there, elsewhere copies of it; the other node cannot know, and need not.
TEST(CudaSumsOfSeveralNodes, HaveThemWhereOneNodeSharesAGpuAndAnotherDoesNot) {
  run_sums({2, 2}, {{"FAKE_CUDA_DEVICES", "2"}}, 10'000, {0, 0, 0, 1});
  run_sums({3, 2}, {{"FAKE_CUDA_DEVICES", "2"}, {"EPCCL_CHUNK_SIZE", "512"}, {"EPCCL_SCRATCH_SIZE", "26000"}},
           3000, {0, 1, 0, 1, 1});
}

TEST(CudaSumsOfSeveralNodes, HaveThemInRounds) {
  run_sums({3, 2}, {{"EPCCL_SCRATCH_SIZE", "26000"}}, 10'000);
}

class CudaTrafficOfNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::kernels::bytes_of(device::kernels::Image::reduce).empty())
      GTEST_SKIP() << "built without CUDA kernels";
  }
  static RunOptions two_nodes(const char* gpus) {
    return {{4, 4}, {{"EPCCL_ALGO", "two_stage"}, {"FAKE_CUDA_DEVICES", gpus}}, {}};
  }
  static constexpr long bytes = Traffic::bytes, block = bytes / 8, slice = bytes / 4;
};

// Each input is read once, where it lies, and no result is copied. How many ranks of a node have a slice of an allreduce or reduce, and so
// work, the cost model says.
TEST_F(CudaTrafficOfNodes, SumsOnOneGpuReadInputsWhereTheyLie) {
  run_ranks(two_nodes("1"), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    Traffic calls(context, comm, gpu);
    // For a rank of the other node 4 blocks become 1; then 4 and what comes from there become 1.
    EXPECT_EQ(calls.reduce_scatter(), (Moved{5 * block + 6 * block, 0, 2}));
    const Moved all = calls.allreduce();
    EXPECT_EQ(all.copied, 0);
    EXPECT_EQ(all.kernels % (5 * slice + 6 * slice), 0)
        << "4 inputs become 1; 2 parts are written to 4 outputs";
    constexpr int root = 1;
    const Moved one = calls.reduce(root);
    EXPECT_EQ(one.copied, 0);
    const long parts = context.rank == root ? 6 : context.rank < 4 ? 7 : 5;
    EXPECT_EQ(one.kernels % (parts * slice), 0) << "at the root's node: to scratch and to the root's output";
  });
}

// Between GPUs copy engines fetch what is added up: 3 blocks for either node.
TEST_F(CudaTrafficOfNodes, SumsBetweenGpusAddUpWhatEnginesFetched) {
  run_ranks(two_nodes("2"), [](const RankContext& context) {
    const GpuRank gpu(context.rank % 2);
    const Comm comm(context);
    Traffic calls(context, comm, gpu);
    EXPECT_EQ(calls.reduce_scatter(), (Moved{5 * block + 6 * block, 6 * block, 2}));
    const Moved all = calls.allreduce();
    EXPECT_EQ(all.kernels % (5 * slice + 3 * slice), 0);
    EXPECT_EQ(all.copied * 4, all.kernels * 3) << "of 8 parts 3 are fetched, and 3 are copies of the result";
  });
}

constexpr std::array all_kinds{Drawn::alltoall,  Drawn::alltoallv, Drawn::allgather,
                               Drawn::broadcast, Drawn::gather,    Drawn::scatter,
                               Drawn::allreduce, Drawn::reduce,    Drawn::reduce_scatter};

TEST(CudaCallsByCoresOfSeveralNodes, MoveTheBytesThatTheHostMoves) {
  run_drawn({2, 2}, {{"EPCCL_COPY_ENGINE", "never"}}, 10'000, all_kinds);
}

TEST(CudaCallsByCoresOfSeveralNodes, MoveThemInTinyPieces) {
  run_drawn({2, 1, 1},
            {{"EPCCL_COPY_ENGINE", "never"}, {"EPCCL_CHUNK_SIZE", "512"}, {"EPCCL_STAGE_SIZE", "300"}}, 3000,
            all_kinds);
}

// The double keeps all other calls out while one of a process waits for the GPU: that must be none behind a held stream.
TEST(CudaCallsByCoresOfSeveralNodes, WaitForTheGpuNowhereInTheDriver) {
  run_drawn({2, 1}, {{"EPCCL_COPY_ENGINE", "never"}, {"FAKE_CUDA_CONTEXT_LOCK", "1"}}, 5000, all_kinds);
}

TEST(CudaCallsByCoresOfSeveralNodes, LeaveEnginesAlone) {
  if (device::kernels::bytes_of(device::kernels::Image::copies).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  run_ranks({{2, 2}, {}, {}}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    constexpr size_t count = 5000;
    const auto total = count * static_cast<size_t>(context.ranks);
    const GpuArray<float> input(gpu, std::vector<float>(total, 2.5F)), output(gpu, total);
    const auto copies_of_calls = [&](const char* engine) {
      EXPECT_EQ(epcclCommSetCopyEngine(comm, engine), epcclSuccess);
      fake_cuda_forget_calls();
      EXPECT_EQ(epcclAlltoall(input.data(), output.data(), count, epcclFloat32, comm, gpu.as_epccl()),
                epcclSuccess);
      EXPECT_EQ(
          epcclAllReduce(input.data(), output.data(), count, epcclFloat32, epcclMax, comm, gpu.as_epccl()),
          epcclSuccess);
      gpu.wait();
      return fake_cuda_calls("copies inside") + fake_cuda_calls("copies to the host") +
             fake_cuda_calls("copies from the host");
    };
    EXPECT_GT(copies_of_calls("auto"), 0);
    EXPECT_EQ(copies_of_calls("never"), 0);
  });
}

// Also those between the GPU and pinned memory.
TEST(CudaCallsByCoresOfSeveralNodes, TakeAsManyBlocksAsTheEnvironmentSays) {
  if (device::kernels::bytes_of(device::kernels::Image::copies).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  for (const auto& [setting, most] : {std::pair("0", 10), std::pair("3", 3)})
    run_ranks({{2, 2}, {{"EPCCL_COPY_ENGINE", "never"}, {"EPCCL_MAX_CTAS", setting}}, {}},
              [&](const RankContext& context) {
                const GpuRank gpu;
                const Comm comm(context);
                Traffic calls(context, comm, gpu);
                calls.alltoall();
                EXPECT_EQ(fake_cuda_calls("most blocks of epccl_copies"), most);
              });
}

}  // namespace
}  // namespace epccl::tests
