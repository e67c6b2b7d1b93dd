// Static mode captured into CUDA graphs where a thread of the library makes the calls at each run: over several nodes, and where no kernels
// are to move the rows. What comes is what the same calls give that are not captured, bit for bit.
#include <gtest/gtest.h>

#include "captured_steps.hpp"
#include "problem.hpp"

namespace epccl::tests {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

class ReplayedEp : public CudaGraphs, public ::testing::WithParamInterface<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Over, ReplayedEp,
                         ::testing::Values(std::vector{2, 2}, std::vector{2, 1}, std::vector{1, 1, 1}),
                         [](const auto& it) {
                           std::string name = "Nodes";
                           for (const int ranks : it.param) name += "_" + std::to_string(ranks);
                           return name;
                         });

TEST_P(ReplayedEp, DoesWhatTheCallsDoInBothLayouts) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    for (const auto layout : {EPCCL_EP_LAYOUT_RANK_MAJOR, EPCCL_EP_LAYOUT_EXPERT_MAJOR}) {
      const Problem problem = small_problem(context.ranks, layout);
      const StepHandle replayed(problem, comm), called(problem, comm);
      StaticStep graphs(context, gpu, problem, problem.max_tokens),
          calls(context, gpu, problem, problem.max_tokens);
      const Graph graph(
          gpu, [&] { graphs.all(replayed); }, CU_STREAM_CAPTURE_MODE_GLOBAL);
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

void replay_steps(const std::vector<int>& nodes, const Environment& environment, GpuMemoryKind kind,
                  int problems, bool knows_gpu = true) {
  const uint64_t seed = seed_of_this_test();
  run_ranks({nodes, environment, {}}, [&](const RankContext& context) {
    replay_random_steps(context, seed, kind, problems, knows_gpu);
  });
}

TEST_P(ReplayedEp, DoesWhatTheCallsDoBitForBit) {
  replay_steps(GetParam(), {}, GpuMemoryKind::plain, 3);
}

TEST_F(CudaGraphs, OfRowsOverNodesThatPeersCannotMapPassThroughMemoryOfTheLibrary) {
  replay_steps({2, 1}, {}, GpuMemoryKind::unmappable, 3);
}

TEST_F(CudaGraphs, OfLayersByComputeCoresWorkOverNodes) {
  replay_steps({1, 2}, {{"EPCCL_COPY_ENGINE", "never"}}, GpuMemoryKind::plain, 2);
}

TEST_F(CudaGraphs, OfStagedLayersWorkOverNodes) {
  replay_steps({1, 2}, {{"EPCCL_COPY_ENGINE", "never"}}, GpuMemoryKind::plain, 2, false);
}

TEST_F(CudaGraphs, OfStagedLayersWorkOnOneNode) {
  replay_steps({2}, {{"EPCCL_COPY_ENGINE", "never"}}, GpuMemoryKind::plain, 2);
}

// Short messages and tight scratch: many blocks, whose plan outlives the routing.
TEST_F(CudaGraphs, OfLayersOverNodesInManyBlocksWork) {
  replay_steps({2, 2}, {{"EPCCL_CHUNK_SIZE", "2048"}, {"EPCCL_STAGE_SIZE", "3000"}}, GpuMemoryKind::plain, 2);
}

TEST_F(CudaGraphs, OverNodesUseTheRoutingOfTheLastUpdateOfTheStream) {
  run_ranks({{2, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem problem = small_problem(context.ranks, EPCCL_EP_LAYOUT_EXPERT_MAJOR);
    const StepHandle replayed(problem, comm), called(problem, comm);
    StaticStep step(context, gpu, problem, 7), calls(context, gpu, problem, 7);
    // Updated, not captured; the rest is.
    step.fill(1);
    step.update(replayed);
    const Graph rest(gpu, [&] {
      step.dispatch(replayed);
      step.combine(replayed);
    });
    const Graph update(gpu, [&] { step.update(replayed); });
    for (uint64_t round = 1; round < 6; ++round) {
      step.fill(round);
      calls.fill(round);
      if (round % 2 == 0)
        update.launch();
      else
        step.update(replayed);
      rest.launch();
      calls.all(called);
      ASSERT_EQ(step.difference(calls), "") << "round " << round;
    }
    EXPECT_EQ(epcclEpComplete(replayed), epcclSuccess) << epcclGetLastError(nullptr);
  });
}

// Kernels have made the layout of the update that was called last, the host that of the replay after it.
TEST_F(CudaGraphs, OverNodesGiveTheirRoutingToCallsThatAreNotCaptured) {
  run_ranks({{2, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem problem = small_problem(context.ranks, EPCCL_EP_LAYOUT_EXPERT_MAJOR);
    const StepHandle both(problem, comm), called(problem, comm);
    StaticStep step(context, gpu, problem, 7), calls(context, gpu, problem, 7);
    step.fill(0);
    step.update(both);
    const Graph update(gpu, [&] { step.update(both); });
    for (uint64_t round = 1; round < 4; ++round) {
      step.fill(round);
      calls.fill(round);
      if (round != 2)
        update.launch();
      else
        step.update(both);
      step.dispatch(both);
      step.combine(both);
      calls.all(called);
      ASSERT_EQ(step.difference(calls), "") << "round " << round;
    }
    EXPECT_EQ(epcclEpComplete(both), epcclSuccess) << epcclGetLastError(nullptr);
  });
}

// To capture makes no routing for calls that are not captured, and takes none away.
TEST_F(CudaGraphs, OverNodesLeaveOtherCallsOfTheHandleAlone) {
  run_ranks({{1, 2}, {}, {}}, [](const RankContext& context) {
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
    step.fill(2);
    calls.fill(2);
    step.all(both);
    calls.all(called);
    ASSERT_EQ(step.difference(calls), "");
    epcclEpStats_t stats = EPCCL_EP_STATS_INIT;
    EXPECT_EQ(epcclEpGetStats(both, &stats), epcclSuccess) << epcclGetLastError(nullptr);
    epcclEpProgress_t progress = EPCCL_EP_PROGRESS_INIT;
    EXPECT_EQ(epcclEpGetProgress(both, &progress), epcclSuccess);
    EXPECT_EQ(progress.calls_started, 10U) << "captured calls are not counted";
  });
}

// Layers of a model: each has a handle, and all are one graph.
TEST_F(CudaGraphs, OverNodesHoldLayersOfSeveralHandles) {
  run_ranks({{2, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem by_expert = small_problem(context.ranks, EPCCL_EP_LAYOUT_EXPERT_MAJOR),
                  by_rank = small_problem(context.ranks, EPCCL_EP_LAYOUT_RANK_MAJOR);
    const StepHandle first(by_expert, comm), second(by_rank, comm), first_called(by_expert, comm),
        second_called(by_rank, comm);
    StaticStep one(context, gpu, by_expert, 9), two(context, gpu, by_rank, 5),
        one_called(context, gpu, by_expert, 9), two_called(context, gpu, by_rank, 5);
    const Graph graph(gpu, [&] {
      one.update(first);
      two.update(second);
      one.dispatch(first);
      two.dispatch(second);
      two.combine(second);
      one.combine(first);
    });
    for (uint64_t round = 0; round < 4; ++round) {
      for (StaticStep* step : {&one, &one_called}) step->fill(round);
      for (StaticStep* step : {&two, &two_called}) step->fill(round + 100);
      graph.launch();
      one_called.all(first_called);
      two_called.all(second_called);
      ASSERT_EQ(one.difference(one_called), "") << "round " << round;
      ASSERT_EQ(two.difference(two_called), "") << "round " << round;
    }
  });
}

}  // namespace
}  // namespace epccl::tests
