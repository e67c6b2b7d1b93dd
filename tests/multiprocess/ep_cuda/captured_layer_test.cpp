// Static mode captured into CUDA graphs: update, dispatch, combine and their way back, replayed with new tables, tokens and weights in
// the same buffers. What comes is what the same calls give that are not captured, bit for bit. On the double of the driver a graph's
// branches run in a random order.
#include <gmock/gmock.h>

#include <span>
#include <vector>

#include "captured_steps.hpp"

namespace epccl::tests {
namespace {

using ::testing::Each;

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

void replay_steps(RanksAre ranks_are, int ranks, GpuMemoryKind kind, int problems) {
  const uint64_t seed = seed_of_this_test();
  run_gpu_ranks(ranks_are, ranks, {},
                [&](const RankContext& context) { replay_random_steps(context, seed, kind, problems); });
}

TEST_P(CapturedEp, DoesWhatTheCallsDoBitForBit) {
  replay_steps(GetParam(), 3, GpuMemoryKind::plain, 3);
}

TEST_F(CudaGraphs, OfRowsThatPeersCannotMapPassThroughMemoryOfTheLibrary) {
  replay_steps(RanksAre::processes, 2, GpuMemoryKind::unmappable, 3);
}

TEST_F(CudaGraphs, OfALayerOfARankAloneWork) {
  replay_steps(RanksAre::processes, 1, GpuMemoryKind::plain, 2);
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

// A combine goes over the tokens that it was captured with, whatever the routing has.
TEST_F(CudaGraphs, BringNoWeightsHomeForTokensThatTheRoutingDoesNotHave) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    for (const auto layout : {EPCCL_EP_LAYOUT_RANK_MAJOR, EPCCL_EP_LAYOUT_EXPERT_MAJOR}) {
      const Problem problem = small_problem(context.ranks, layout);
      const StepHandle handle(problem, comm);
      StaticStep step(context, gpu, problem, 9), fewer(context, gpu, problem, 4);
      const Graph update(gpu, [&] { step.update(handle); });
      const Graph rest(gpu, [&] {
        step.dispatch(handle);
        step.combine(handle);
      });
      step.fill(1);
      rest.launch();
      EXPECT_THAT(step.home_weights(), Each(0)) << "before the first update";
      step.fill(2);
      update.launch();
      fewer.fill(3);
      fewer.update(handle);
      rest.launch();
      const std::vector<float> home = step.home_weights();
      EXPECT_THAT(std::span(home).subspan(4 * problem.k), Each(0)) << "of four tokens";
      EXPECT_EQ(epcclEpComplete(handle), epcclSuccess) << epcclGetLastError(nullptr);
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
