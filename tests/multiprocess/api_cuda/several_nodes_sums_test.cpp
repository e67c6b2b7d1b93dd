// Sums over several nodes in GPU memory have the bits that they have in host memory.
#include <array>

#include "device/cuda/kernels/launch.hpp"
#include "drawn_calls.hpp"

namespace epccl::tests {
namespace {

constexpr std::array summing{Drawn::allreduce, Drawn::reduce_scatter, Drawn::reduce};

void run_sums(const std::vector<int>& nodes,
              const std::vector<std::pair<std::string, std::string>>& environment, size_t most) {
  if (device::cuda::bytes_of(device::cuda::Image::reduce).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  const uint64_t seed = drawn_seed();
  run_ranks({nodes, environment, {}}, [&](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 10; ++round) {
      const DrawnCall call(summing[random() % summing.size()], random, context.ranks, most);
      expect_the_hosts_bytes(call, context, comm, gpu, GpuMemoryKind::plain);
      if (::testing::Test::HasFailure()) return;
    }
  });
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

}  // namespace
}  // namespace epccl::tests
