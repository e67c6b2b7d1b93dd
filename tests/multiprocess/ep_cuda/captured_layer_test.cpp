// Static mode captured into CUDA graphs: update, dispatch, combine and their way back, replayed with new tables, tokens and weights in
// the same buffers. What comes is what the same calls give that are not captured, bit for bit. On the double of the driver a graph's
// branches run in a random order.
#include <gmock/gmock.h>

#include "graph_layer.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;

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
      const Graph graph(gpu, [&] { graphs.all(replayed); });
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

}  // namespace
}  // namespace epccl::tests
