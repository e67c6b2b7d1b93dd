// Dispatch and combine of GPU memory by kernels, from one rank's memory to another's. On the double of the driver the kernels' code
// runs on the host. What comes is what comes on the host, bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "device/cuda/kernels/launch.hpp"
#include "gpu_copies.hpp"

namespace epccl::tests {
namespace {

uint64_t seed_of_this_test() {
  const char* given = std::getenv("EPCCL_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  fmt::print("EPCCL_TEST_SEED={}\n", seed);
  return seed;
}

class KernelEp : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  void SetUp() override {
    if (device::cuda::bytes_of(device::cuda::Image::rows).empty())
      GTEST_SKIP() << "built without CUDA kernels";
  }
};

TEST_P(KernelEp, GivesWhatTheRoutingSays) {
  const uint64_t seed = seed_of_this_test();
  run_ranks({GetParam(), {}, {}}, [seed](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 3 && !HasFailure(); ++i) {
      const Problem problem = random_problem(GetParam(), random);
      SCOPED_TRACE(problem.text());
      GpuCopies copies(gpu);
      Layer layer(context, comm, problem, gpu.as_epccl(), &copies);
      layer.update();
      layer.forward(problem.by_expert());
      layer.check_stats();
      layer.forward(false, true);
      if (problem.by_expert()) layer.backward();
    }
  });
}

TEST_P(KernelEp, IsTheSameInStaticMode) {
  const uint64_t seed = seed_of_this_test();
  run_ranks({GetParam(), {}, {}}, [seed](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed);
    Problem problem = random_problem_of_fixed_size(GetParam(), random);
    problem.is_static = true;
    SCOPED_TRACE(problem.text());
    GpuCopies copies(gpu);
    Layer layer(context, comm, problem, gpu.as_epccl(), &copies);
    for (int step = 0; step < 2; ++step) {
      layer.update();
      layer.forward(problem.by_expert());
      reroute(problem, random);
      layer.take(problem);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, KernelEp,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{2}, std::vector<int>{4}));

}  // namespace
}  // namespace epccl::tests
