// Static mode captured into CUDA graphs: update, dispatch, combine and their way back, replayed with new tables, tokens and weights in
// the same buffers. What comes is what the same calls give that are not captured, bit for bit. On the double of the driver a graph's
// branches run in a random order.
#include <gtest/gtest.h>

#include <random>

#include "graph_layer.hpp"

namespace epccl::tests {
namespace {

Problem small_problem(int ranks, epcclEpLayout_t layout) {
  Problem problem;
  problem.ranks_per_node = {ranks};
  problem.layout = layout;
  problem.experts = static_cast<uint32_t>(2 * ranks);
  problem.k = 3;
  problem.max_tokens = 9;
  problem.hidden = 200;
  problem.capacity = problem.by_expert() ? 4 : 0;
  problem.tokens.assign(static_cast<size_t>(ranks), problem.max_tokens);
  for (uint32_t expert = 0; expert < problem.experts; ++expert)
    problem.owner.push_back(static_cast<int>(expert) / 2);
  return problem;
}

class CapturedEp : public CudaGraphs, public ::testing::WithParamInterface<RanksAre> {};
INSTANTIATE_TEST_SUITE_P(Are, CapturedEp, ::testing::Values(RanksAre::processes, RanksAre::threads),
                         [](const auto& it) {
                           return it.param == RanksAre::threads ? "Threads" : "Processes";
                         });

TEST_P(CapturedEp, DoesWhatTheCallsDoInBothLayouts) {
  run_gpu_ranks(GetParam(), 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    for (const auto layout : {EPCCL_EP_LAYOUT_RANK_MAJOR, EPCCL_EP_LAYOUT_EXPERT_MAJOR}) {
      const Problem problem = small_problem(context.ranks, layout);
      const StepHandle replayed(problem, comm), called(problem, comm);
      StaticStep graphs(context, gpu, problem, problem.max_tokens),
          calls(context, gpu, problem, problem.max_tokens);
      // The strictest mode would forbid other threads' programs to allocate.
      const auto mode = GetParam() == RanksAre::processes ? CU_STREAM_CAPTURE_MODE_GLOBAL
                                                          : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
      const Graph graph(
          gpu, [&] { graphs.all(replayed); }, mode);
      for (uint64_t round = 0; round < 3; ++round) {
        graphs.fill(round);
        calls.fill(round);
        graph.launch();
        calls.all(called);
        ASSERT_EQ(graphs.difference(calls), "") << "layout " << layout << ", round " << round;
      }
      EXPECT_EQ(epcclEpComplete(called), epcclSuccess) << epcclGetLastError(nullptr);
      EXPECT_EQ(epcclEpComplete(replayed), epcclSuccess) << epcclGetLastError(nullptr);
    }
  });
}

Problem random_problem_to_capture(int ranks, std::mt19937_64& random) {
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  Problem problem;
  problem.ranks_per_node = {ranks};
  problem.layout = below(2) == 0 ? EPCCL_EP_LAYOUT_RANK_MAJOR : EPCCL_EP_LAYOUT_EXPERT_MAJOR;
  problem.type = std::vector{epcclFloat32, epcclBfloat16, epcclFloat16}[below(3)];
  problem.experts = 1 + below(8);
  problem.k = 1 + below(4);
  problem.max_tokens = 1 + below(below(3) == 0 ? 70 : 12);
  problem.hidden = 1 + below(below(2) == 0 ? 9 : 300);
  if (problem.by_expert()) {
    problem.capacity = 1 + below(12);
    problem.alignment = 1 + below(4);
  }
  problem.tokens.assign(static_cast<size_t>(ranks), problem.max_tokens);
  for (uint32_t expert = 0; expert < problem.experts; ++expert)
    problem.owner.push_back(static_cast<int>(below(static_cast<uint32_t>(ranks))));
  return problem;
}

/// A step as a graph, or as several.
class GraphsOfStep {
 public:
  GraphsOfStep(const GpuRank& gpu, StaticStep& step, epcclEpHandle_t handle, uint64_t parts) {
    using Calls = std::vector<void (StaticStep::*)(epcclEpHandle_t)>;
    const Calls calls{&StaticStep::update, &StaticStep::dispatch, &StaticStep::combine};
    Calls together;
    for (size_t i = 0; i < calls.size(); ++i) {
      together.push_back(calls[i]);
      if (i + 1 < calls.size() && (parts >> i & 1) != 0) continue;
      graphs_.push_back(std::make_unique<Graph>(gpu, [&] {
        for (const auto call : together) (step.*call)(handle);
      }));
      together.clear();
    }
  }
  void launch() const {
    for (const auto& graph : graphs_) graph->launch();
  }

 private:
  std::vector<std::unique_ptr<Graph>> graphs_;
};

// Two numbers of tokens, whose graphs share a handle and take turns.
void replay_random_steps(RanksAre ranks_are, int ranks, GpuMemoryKind kind, int problems) {
  const uint64_t seed = seed_of_this_test();
  run_gpu_ranks(ranks_are, ranks, {}, [&](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed);
    for (int i = 0; i < problems; ++i) {
      const Problem problem = random_problem_to_capture(context.ranks, random);
      const StepHandle replayed(problem, comm), called(problem, comm);
      std::vector<std::unique_ptr<StaticStep>> steps, calls;
      std::vector<std::unique_ptr<GraphsOfStep>> graphs;
      for (int each = 0; each < 2; ++each) {
        uint32_t mine = 0;
        for (int rank = 0; rank < context.ranks; ++rank)
          if (const auto tokens = static_cast<uint32_t>(random() % (problem.max_tokens + 1));
              rank == context.rank)
            mine = tokens;
        steps.push_back(std::make_unique<StaticStep>(context, gpu, problem, mine, kind));
        calls.push_back(std::make_unique<StaticStep>(context, gpu, problem, mine));
        graphs.push_back(std::make_unique<GraphsOfStep>(gpu, *steps.back(), replayed, random()));
      }
      for (int round = 0; round < 4; ++round) {
        const size_t which = random() % 2;
        const uint64_t data = random() % 1'000'000;
        steps[which]->fill(data);
        calls[which]->fill(data);
        graphs[which]->launch();
        calls[which]->all(called);
        ASSERT_EQ(steps[which]->difference(*calls[which]), "")
            << problem.text() << ", problem " << i << ", round " << round;
      }
    }
  });
}

TEST_P(CapturedEp, DoesWhatTheCallsDoBitForBit) {
  replay_random_steps(GetParam(), 3, GpuMemoryKind::plain, 3);
}

TEST_F(CudaGraphs, OfRowsThatPeersCannotMapPassThroughMemoryOfTheLibrary) {
  replay_random_steps(RanksAre::processes, 2, GpuMemoryKind::unmappable, 3);
}

TEST_F(CudaGraphs, OfALayerOfARankAloneWork) {
  replay_random_steps(RanksAre::processes, 1, GpuMemoryKind::plain, 2);
}

TEST_F(CudaGraphs, UseTheRoutingOfTheLastUpdateOnTheGpu) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem problem = small_problem(context.ranks, EPCCL_EP_LAYOUT_EXPERT_MAJOR);
    const StepHandle replayed(problem, comm), called(problem, comm);
    StaticStep step(context, gpu, problem, 7), calls(context, gpu, problem, 7);
    // Updated, not captured; the rest is.
    step.fill(1);
    step.update(replayed);
    EXPECT_EQ(epcclEpComplete(replayed), epcclSuccess) << epcclGetLastError(nullptr);
    const Graph graph(gpu, [&] {
      step.dispatch(replayed);
      step.combine(replayed);
    });
    for (uint64_t round = 1; round < 4; ++round) {
      step.fill(round);
      calls.fill(round);
      step.update(replayed);
      graph.launch();
      calls.all(called);
      ASSERT_EQ(step.difference(calls), "") << "round " << round;
    }
  });
}

// To capture makes no routing for calls that are not captured, and takes none away.
TEST_F(CudaGraphs, LeaveOtherCallsOfTheHandleAlone) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem problem = small_problem(context.ranks, EPCCL_EP_LAYOUT_EXPERT_MAJOR);
    const StepHandle both(problem, comm), called(problem, comm);
    StaticStep captured(context, gpu, problem, 9), step(context, gpu, problem, 4),
        calls(context, gpu, problem, 4);
    captured.fill(8);
    step.fill(1);
    step.update(both);
    const Graph graph(gpu, [&] { captured.all(both); });
    // The graph has not run: the routing is still the one of before.
    step.dispatch(both);
    step.combine(both);
    calls.fill(1);
    calls.all(called);
    ASSERT_EQ(step.difference(calls), "");
    graph.launch();
    gpu.wait();
    epcclEpStats_t stats = EPCCL_EP_STATS_INIT;
    step.fill(2);
    calls.fill(2);
    step.all(both);
    calls.all(called);
    ASSERT_EQ(step.difference(calls), "");
    EXPECT_EQ(epcclEpGetStats(both, &stats), epcclSuccess) << epcclGetLastError(nullptr);
    epcclEpProgress_t progress = EPCCL_EP_PROGRESS_INIT;
    EXPECT_EQ(epcclEpGetProgress(both, &progress), epcclSuccess);
    EXPECT_EQ(progress.calls_started, 10U) << "captured calls are not counted";
  });
}

}  // namespace
}  // namespace epccl::tests
