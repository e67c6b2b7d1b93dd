// What may go wrong with captured calls of a handle: as plain as they can be, to be refused; and replays that cannot go on.
#pragma once

#include <gmock/gmock.h>
#include <signal.h>

#include <functional>
#include <numeric>
#include <vector>

#include "graph_layer.hpp"

namespace epccl::tests {

inline Problem plain_problem(int ranks) {
  Problem problem;
  problem.layout = EPCCL_EP_LAYOUT_EXPERT_MAJOR;
  problem.experts = static_cast<uint32_t>(ranks);
  problem.k = 2;
  problem.max_tokens = problem.capacity = 6;
  problem.hidden = 40;
  problem.tokens.assign(static_cast<size_t>(ranks), problem.max_tokens);
  for (int rank = 0; rank < ranks; ++rank) problem.owner.push_back(rank);
  return problem;
}

inline void expect_refused(epcclResult_t result, const char* why) {
  EXPECT_EQ(result, epcclInvalidUsage);
  EXPECT_THAT(epcclGetLastError(nullptr), ::testing::HasSubstr(why));
}

/// A rank's table, and tokens and rows of 8 elements: calls as plain as they can be.
struct PlainCalls {
  PlainCalls(const GpuRank& gpu, uint32_t tokens, uint32_t k, size_t rows)
      : stream(gpu.as_epccl()),
        table(gpu, std::vector<int64_t>(size_t{tokens} * k, 0)),
        tokens_in(gpu, size_t{tokens} * 8),
        rows_there(gpu, rows * 8),
        topk(epcclInt64, table.data(), {tokens, k}),
        in(epcclFloat32, tokens_in.data(), {tokens, 8}),
        out(epcclFloat32, rows_there.data(), {rows, 8}) {}

  epcclResult_t update(epcclEpHandle_t handle, const epcclEpLayoutInfo_t* info = nullptr) {
    return epcclEpUpdateHandle(handle, topk, info, stream);
  }
  epcclResult_t dispatch(epcclEpHandle_t handle, bool send_only = false) {
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    inputs.tokens = in;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    outputs.tokens = out;
    epcclEpDispatchConfig_t config = EPCCL_EP_DISPATCH_CONFIG_INIT;
    config.send_only = send_only ? 1 : 0;
    return epcclEpDispatch(handle, &inputs, &outputs, &config, stream);
  }
  epcclResult_t combine(epcclEpHandle_t handle, bool weighted = false) {
    epcclEpCombineInputs_t inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
    inputs.tokens = out;
    epcclEpCombineOutputs_t outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    outputs.tokens = in;
    epcclEpCombineConfig_t config = EPCCL_EP_COMBINE_CONFIG_INIT;
    config.weighted = weighted ? 1 : 0;
    return epcclEpCombine(handle, &inputs, &outputs, &config, stream);
  }

  const epcclStream_t stream;
  const GpuArray<int64_t> table;
  const GpuArray<float> tokens_in, rows_there;
  Tensor topk, in, out;
};

/// Two ranks with a graph of a step that ran once. `fail` is rank 1's; then rank 0 runs the graph again, alone.
inline void expect_a_replay_to_end(const RunOptions& options, const char* said,
                                   const std::function<void(epcclComm_t)>& fail) {
  run_ranks(options, [&](const RankContext& context) {
    GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    {
      const Problem problem = plain_problem(2);
      const StepHandle handle(problem, comm);
      StaticStep step(context, gpu, problem, 6);
      const Graph graph(gpu, [&] { step.all(handle); });
      step.fill(0);
      graph.launch();
      gpu.wait();
      if (context.rank == 1) {
        fail(comm);
      } else {
        graph.launch();
        gpu.wait();  // not for ever
        EXPECT_EQ(wait_for_failure(comm), epcclRemoteError);
        EXPECT_THAT(epcclGetLastError(comm), ::testing::HasSubstr(said));
      }
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

inline void die_in_kernel(const void*, unsigned, unsigned) {
  raise(SIGKILL);
}

/// Rank 1 dies in its first `kernel` of a replay; the other ranks' replays end, and name it.
inline void expect_replays_to_end_when_a_peer_dies_in(const char* kernel, size_t parameter_bytes,
                                                      const std::vector<int>& nodes) {
  const int ranks = std::accumulate(nodes.begin(), nodes.end(), 0);
  run_ranks({nodes, {{"EPCCL_TIMEOUT", "20"}}, {1}}, [&](const RankContext& context) {
    GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, ranks, context.id, context.rank), epcclSuccess);
    {
      const Problem problem = plain_problem(ranks);
      const StepHandle handle(problem, comm);
      StaticStep step(context, gpu, problem, 6);
      if (context.rank == 1) fake_cuda_kernel(kernel, parameter_bytes, die_in_kernel);
      const Graph graph(gpu, [&] { step.all(handle); });
      step.fill(0);
      graph.launch();
      gpu.wait();
      EXPECT_EQ(wait_for_failure(comm), epcclRemoteError);
      EXPECT_THAT(epcclGetLastError(comm), ::testing::HasSubstr("rank 1"));
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace epccl::tests
