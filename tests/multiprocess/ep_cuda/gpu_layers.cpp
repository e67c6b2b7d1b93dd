#include "gpu_layers.hpp"

#include <gtest/gtest.h>

#include <random>

#include "gpu_copies.hpp"

namespace epccl::tests {

void run_random_layers(const RunOptions& options) {
  const uint64_t seed = seed_of_this_test();
  run_ranks(options, [&options, seed](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 3 && !::testing::Test::HasFailure(); ++i) {
      const Problem problem = random_problem(options.ranks_per_node, random);
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

void run_static_layers(const RunOptions& options) {
  const uint64_t seed = seed_of_this_test();
  run_ranks(options, [&options, seed](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed);
    Problem problem = random_problem_of_fixed_size(options.ranks_per_node, random);
    problem.is_static = true;
    SCOPED_TRACE(problem.text());
    GpuCopies copies(gpu);
    Layer layer(context, comm, problem, gpu.as_epccl(), &copies);
    for (int step = 0; step < 2; ++step) {
      layer.update();
      layer.forward(problem.by_expert());
      if (problem.by_expert()) layer.backward();
      layer.check_stats();
      reroute(problem, random);
      layer.take(problem);
    }
  });
}

}  // namespace epccl::tests
