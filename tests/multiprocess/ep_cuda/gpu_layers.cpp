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

namespace {

/// What a rank has for its layers.
struct LayerRank {
  const RankContext& context;
  const Comm& comm;
  GpuRank& gpu;
  std::mt19937_64& random;  // the same numbers on all ranks
  const Meet& meet;
};

void run_layer_ranks(const GpuRun& run, const std::function<void(const LayerRank&)>& body) {
  const uint64_t seed = seed_of_this_test();
  run_gpu_ranks(run, [&](const RankContext& context, const Meet& meet) {
    std::mt19937_64 random(seed);
    if (run.knows_gpu) {
      GpuRank gpu;
      const Comm comm(context);
      body({context, comm, gpu, random, meet});
    } else {
      const Comm comm(context);
      GpuRank gpu;
      body({context, comm, gpu, random, meet});
    }
  });
}

Problem static_problem(const GpuRun& run, std::mt19937_64& random) {
  Problem problem = random_problem_of_fixed_size(run.options.ranks_per_node, random);
  problem.is_static = true;
  return problem;
}

}  // namespace

void run_random_layers(const GpuRun& run) {
  run_layer_ranks(run, [&run](const LayerRank& rank) {
    for (int i = 0; i < 3; ++i) {
      rank.meet();
      const Problem problem = random_problem(run.options.ranks_per_node, rank.random);
      SCOPED_TRACE(problem.text());
      GpuCopies copies(rank.gpu, run.memory);
      Layer layer(rank.context, rank.comm, problem, rank.gpu.as_epccl(), &copies);
      layer.update();
      layer.forward(problem.by_expert());
      layer.check_stats();
      layer.forward(false, true);
      if (problem.by_expert()) layer.backward();
      rank.gpu.wait();
      rank.meet();
    }
  });
}

void run_static_layers(const GpuRun& run) {
  run_layer_ranks(run, [&run](const LayerRank& rank) {
    Problem problem = static_problem(run, rank.random);
    SCOPED_TRACE(problem.text());
    GpuCopies copies(rank.gpu, run.memory);
    Layer layer(rank.context, rank.comm, problem, rank.gpu.as_epccl(), &copies);
    for (int step = 0; step < 2; ++step) {
      layer.update();
      layer.forward(problem.by_expert());
      if (problem.by_expert()) layer.backward();
      layer.check_stats();
      reroute(problem, rank.random);
      layer.take(problem);
    }
    rank.gpu.wait();
    rank.meet();
  });
}

void run_static_layers_by_turns(const GpuRun& run) {
  run_layer_ranks(run, [&run](const LayerRank& rank) {
    Problem problem = static_problem(run, rank.random);
    problem.type = epcclFloat32;
    problem.hidden = 2000;
    problem.max_tokens = 40;  // more than one message of the host's
    reroute(problem, rank.random);
    SCOPED_TRACE(problem.text());
    GpuCopies copies(rank.gpu, run.memory);
    Layer layer(rank.context, rank.comm, problem, rank.gpu.as_epccl(), &copies);
    for (const char* maker : {"auto", "never", "auto"}) {
      SCOPED_TRACE(maker);
      ASSERT_EQ(epcclCommSetCopyEngine(rank.comm, maker), epcclSuccess);
      layer.update();
      layer.forward(problem.by_expert());
      reroute(problem, rank.random);
      layer.take(problem);
    }
    rank.gpu.wait();
    rank.meet();
  });
}

void run_padded_layers(const GpuRun& run) {
  run_layer_ranks(run, [&run](const LayerRank& rank) {
    Problem problem = padded_problem(run.options.ranks_per_node, rank.random);
    SCOPED_TRACE(problem.text());
    GpuCopies copies(rank.gpu, run.memory);
    Layer layer(rank.context, rank.comm, problem, rank.gpu.as_epccl(), &copies);
    for (int step = 0; step < 2; ++step) {
      layer.update();
      layer.forward(true);
      EXPECT_EQ(layer.padding_changed(), 0U) << "step " << step;
      reroute(problem, rank.random);
      layer.take(problem);
    }
    rank.gpu.wait();
    rank.meet();
  });
}

}  // namespace epccl::tests
