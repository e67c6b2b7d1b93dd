#include "gpu_layers.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <random>
#include <thread>

#include "gpu_copies.hpp"

namespace epccl::tests {

void run_gpu_ranks(const GpuRun& run, const std::function<void(const RankContext&, const Meet&)>& body) {
  if (run.as == As::processes)
    return run_ranks(run.options, [&](const RankContext& context) { body(context, [] {}); });
  // In a process of its own: the test's may not have used a GPU when it forks others.
  run_ranks({{1}, run.options.environment, {}}, [&](const RankContext& process) {
    std::vector<RankContext> contexts;
    for (int rank = 0; rank < run.options.ranks_per_node[0]; ++rank)
      contexts.push_back({rank, run.options.ranks_per_node[0], process.id});
    std::barrier barrier(run.options.ranks_per_node[0]);
    const Meet meet = [&barrier] { barrier.arrive_and_wait(); };
    std::vector<std::thread> threads;
    for (const RankContext& context : contexts) threads.emplace_back([&] { body(context, meet); });
    for (std::thread& thread : threads) thread.join();
  });
}

void run_random_layers(const GpuRun& run) {
  const uint64_t seed = seed_of_this_test();
  run_gpu_ranks(run, [&run, seed](const RankContext& context, const Meet& meet) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 3; ++i) {
      meet();
      const Problem problem = random_problem(run.options.ranks_per_node, random);
      SCOPED_TRACE(problem.text());
      GpuCopies copies(gpu, run.memory);
      Layer layer(context, comm, problem, gpu.as_epccl(), &copies);
      layer.update();
      layer.forward(problem.by_expert());
      layer.check_stats();
      layer.forward(false, true);
      if (problem.by_expert()) layer.backward();
      gpu.wait();
      meet();
    }
  });
}

void run_static_layers(const GpuRun& run) {
  const uint64_t seed = seed_of_this_test();
  run_gpu_ranks(run, [&run, seed](const RankContext& context, const Meet& meet) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed);
    Problem problem = random_problem_of_fixed_size(run.options.ranks_per_node, random);
    problem.is_static = true;
    SCOPED_TRACE(problem.text());
    GpuCopies copies(gpu, run.memory);
    Layer layer(context, comm, problem, gpu.as_epccl(), &copies);
    for (int step = 0; step < 2; ++step) {
      layer.update();
      layer.forward(problem.by_expert());
      if (problem.by_expert()) layer.backward();
      layer.check_stats();
      reroute(problem, random);
      layer.take(problem);
    }
    gpu.wait();
    meet();
  });
}

void run_static_layers_by_turns(const GpuRun& run) {
  const uint64_t seed = seed_of_this_test();
  run_gpu_ranks(run, [&run, seed](const RankContext& context, const Meet& meet) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed);
    Problem problem = random_problem_of_fixed_size(run.options.ranks_per_node, random);
    problem.is_static = true;
    problem.type = epcclFloat32;
    problem.hidden = 2000;
    problem.max_tokens = 40;  // more than one message of the host's
    reroute(problem, random);
    SCOPED_TRACE(problem.text());
    GpuCopies copies(gpu, run.memory);
    Layer layer(context, comm, problem, gpu.as_epccl(), &copies);
    for (const char* maker : {"auto", "never", "auto"}) {
      SCOPED_TRACE(maker);
      ASSERT_EQ(epcclCommSetCopyEngine(comm, maker), epcclSuccess);
      layer.update();
      layer.forward(problem.by_expert());
      reroute(problem, random);
      layer.take(problem);
    }
    gpu.wait();
    meet();
  });
}

}  // namespace epccl::tests
