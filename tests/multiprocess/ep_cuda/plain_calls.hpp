// What may go wrong with captured calls of a handle: as plain as they can be, to be refused; and replays that cannot go on.
#pragma once

#include <gmock/gmock.h>
#include <signal.h>

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "dispatch_tokens.hpp"
#include "fake_driver.hpp"
#include "graph_layer.hpp"
#include "names_the_dead.hpp"

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
    return dispatch_tokens(handle, in, out, send_only, stream);
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

/// Of a table that one of two ranks gives to an update that is captured.
inline void expect_wrong_tables_to_be_told(const std::vector<int>& nodes) {
  run_ranks({nodes, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const StepHandle handle(plain_problem(2), comm);
    PlainCalls good(gpu, 6, 2, 6), too_many(gpu, 7, 2, 6), other_k(gpu, 6, 1, 6);
    gpu.wait();
    const auto expect_wrong = [&](PlainCalls& ones, const char* what) {
      EXPECT_EQ((context.rank == 1 ? ones : good).update(handle), epcclInvalidArgument);
      EXPECT_THAT(epcclGetLastError(nullptr), ::testing::HasSubstr(what));
    };
    const Graph graph(gpu, [&] {
      expect_wrong(too_many, "rank 1 has 7 tokens: the group's max_send_tokens_per_rank is 6");
      expect_wrong(other_k, "rank 1 has a top-1 table: the handle's static_topk is 2");
      expect_captured(good.update(handle));
      expect_captured(good.dispatch(handle));
    });
    graph.launch();
    gpu.wait();
    EXPECT_EQ(epcclEpComplete(handle), epcclSuccess) << epcclGetLastError(nullptr);
  });
}

/// Three ranks. Every one is told, once; the rest of the step is as if the entry was unused.
inline void expect_wrong_entries_to_count_as_unused(const std::vector<int>& nodes) {
  run_ranks({nodes, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem problem = plain_problem(3);
    const StepHandle replayed(problem, comm), called(problem, comm);
    StaticStep step(context, gpu, problem, 6), calls(context, gpu, problem, 6);
    const Graph graph(gpu, [&] { step.all(replayed); });
    const auto replay = [&](uint64_t round, int bad_token, int64_t bad) {
      step.fill(round, bad_token, bad);
      graph.launch();
      gpu.wait();
    };
    const auto expect_told = [&](const char* what) {
      EXPECT_EQ(epcclEpCompleteStage(replayed, 1), epcclSuccess) << epcclGetLastError(nullptr);
      EXPECT_EQ(epcclEpComplete(replayed), epcclInvalidArgument);
      EXPECT_THAT(epcclGetLastError(nullptr), ::testing::HasSubstr(what));
      EXPECT_EQ(epcclEpComplete(replayed), epcclSuccess) << epcclGetLastError(nullptr);
    };
    replay(1, context.rank == 2 ? 4 : -1, 9);
    replay(2, context.rank == 2 ? 5 : -1, 9);
    replay(3, -1, 9);
    expect_told("rank 2: topk_idx[4][0] was expert 9 in a replay, but there are 3 experts");
    replay(4, context.rank == 0 ? 2 : -1, -7);
    expect_told("rank 0: topk_idx[2][0] was expert -7");
    // What comes is what comes with -1 there.
    step.fill(5, 3);
    calls.fill(5, 3, -1);
    graph.launch();
    calls.all(called);
    ASSERT_EQ(step.difference(calls), "");
    expect_told("rank 0: topk_idx[3][0]");
  });
}

/// A graph that has run, of a handle and of a communicator that have ended.
inline std::unique_ptr<Graph> graph_that_outlives(epcclComm_t parent, GpuRank& gpu, StaticStep& step) {
  epcclComm_t comm = nullptr;
  EXPECT_EQ(epcclCommSplit(parent, 0, 0, &comm, nullptr), epcclSuccess) << epcclGetLastError(nullptr);
  std::unique_ptr<Graph> graph;
  {
    const StepHandle handle(plain_problem(2), comm);
    graph = std::make_unique<Graph>(gpu, [&] { step.all(handle); });
    step.fill(1);
    graph->launch();
    gpu.wait();
  }
  EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  return graph;
}

/// A graph may be there longer than the handle and the communicator.
inline void expect_graphs_to_leave_nothing(epcclComm_t parent, GpuRank& gpu, StaticStep& step) {
  graph_that_outlives(parent, gpu, step).reset();
  graph_that_outlives(parent, gpu, step).reset();
  const long allocations = fake_cuda_live("allocations"), imports = fake_cuda_live("imports");
  for (int i = 0; i < 3; ++i) {
    auto graph = graph_that_outlives(parent, gpu, step);
    const long held = fake_cuda_live("allocations");
    graph.reset();
    EXPECT_EQ(fake_cuda_live("allocations"), held);
  }
  EXPECT_EQ(fake_cuda_live("graphs"), 0);
  EXPECT_EQ(fake_cuda_live("allocations"), allocations)
      << "each graph's memory ends with the next communicator";
  EXPECT_EQ(fake_cuda_live("imports"), imports);
}

/// Two ranks with a graph of a step that ran once. `fail` is rank 1's; then rank 0 runs the graph again, alone.
inline void expect_a_replay_to_end(const RunOptions& options, const ::testing::Matcher<std::string>& said,
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
      context.meet();
      if (context.rank == 1) {
        fail(comm);
      } else {
        graph.launch();
        gpu.wait();  // not for ever
        EXPECT_EQ(wait_for_failure(comm), epcclRemoteError);
        EXPECT_THAT(epcclGetLastError(comm), said);
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
      EXPECT_THAT(epcclGetLastError(comm), names_the_dead(1));
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace epccl::tests
