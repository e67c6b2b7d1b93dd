// Sums over several nodes in GPU memory have the bits that they have in host memory.
#include <array>

#include "device/cuda/kernels/launch.hpp"
#include "drawn_calls.hpp"
#include "fake_driver.hpp"

namespace epccl::tests {
namespace {

constexpr std::array summing{Drawn::allreduce, Drawn::reduce_scatter, Drawn::reduce};

/// `kinds`: of calls that are drawn.
template <typename Kinds>
void run_drawn(const std::vector<int>& nodes,
               const std::vector<std::pair<std::string, std::string>>& environment, size_t most,
               const Kinds& kinds) {
  if (device::cuda::bytes_of(device::cuda::Image::reduce).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  const uint64_t seed = drawn_seed();
  run_ranks({nodes, environment, {}}, [&](const RankContext& context) {
    GpuRank gpu;
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
              const std::vector<std::pair<std::string, std::string>>& environment, size_t most) {
  run_drawn(nodes, environment, most, summing);
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
  if (device::cuda::bytes_of(device::cuda::Image::copies).empty())
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

}  // namespace
}  // namespace epccl::tests
