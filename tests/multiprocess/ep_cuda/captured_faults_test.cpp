// Updates, dispatches and combines in CUDA graphs: what cannot be captured is refused, what is wrong with a table in a replay is told,
// and a replay that cannot go on ends.
#include <gmock/gmock.h>
#include <signal.h>

#include "fake_driver.hpp"
#include "plain_calls.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;

class CapturedEpFaults : public CudaGraphs {};

TEST_F(CapturedEpFaults, WhatCannotBeCapturedIsRefusedAndTheCaptureGoesOn) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem problem = plain_problem(2);
    const StepHandle handle(problem, comm);
    PlainCalls calls(gpu, 6, 2, 6);
    std::vector<int32_t> here(1);
    Tensor total(epcclInt32, here.data(), {1});
    epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
    info.recv_total_counter = total;
    gpu.wait();
    const Graph graph(gpu, [&] {
      expect_refused(calls.dispatch(handle), "the handle has no routing that kernels have made");
      expect_refused(calls.update(handle, &info), "recv_total_counter is host memory");
      expect_captured(calls.update(handle));
      EXPECT_EQ(epcclCommSetCopyEngine(comm, "never"), epcclSuccess);
      expect_refused(calls.dispatch(handle), "captured calls of this handle are kernels");
      EXPECT_EQ(epcclCommSetCopyEngine(comm, nullptr), epcclSuccess);
      expect_refused(calls.dispatch(handle, true), "send_only");
      // The communicator and the capture are as they were.
      expect_captured(calls.dispatch(handle));
      expect_captured(calls.combine(handle));
    });
    graph.launch();
    gpu.wait();
    EXPECT_EQ(epcclEpComplete(handle), epcclSuccess) << epcclGetLastError(nullptr);
  });
}

TEST_F(CapturedEpFaults, WhatIsWrongWithATableOfOneRankIsToldToAllByTheCall) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const StepHandle handle(plain_problem(2), comm);
    PlainCalls good(gpu, 6, 2, 6), too_many(gpu, 7, 2, 6), other_k(gpu, 6, 1, 6);
    gpu.wait();
    const auto expect_wrong = [&](PlainCalls& ones, const char* what) {
      EXPECT_EQ((context.rank == 1 ? ones : good).update(handle), epcclInvalidArgument);
      EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr(what));
    };
    const Graph graph(gpu, [&] {
      expect_wrong(too_many, "rank 1 has 7 tokens: the group's max_send_tokens_per_rank is 6");
      expect_wrong(other_k, "rank 1 has a top-1 table: the handle's static_topk is 2");
      expect_captured(good.update(handle));
      expect_captured(good.dispatch(handle));
    });
    graph.launch();
    gpu.wait();
  });
}

// Every rank is told, once; the rest of the step is as if the entry was unused.
TEST_F(CapturedEpFaults, AWrongEntryInAReplayCountsAsUnusedAndIsToldByComplete) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem problem = plain_problem(2);
    const StepHandle replayed(problem, comm), called(problem, comm);
    StaticStep step(context, gpu, problem, 6), calls(context, gpu, problem, 6);
    const Graph graph(gpu, [&] { step.all(replayed); });
    const auto replay = [&](uint64_t round, int bad_token) {
      step.fill(round, bad_token);
      graph.launch();
      gpu.wait();
    };
    const auto expect_told = [&](const char* what) {
      EXPECT_EQ(epcclEpCompleteStage(replayed, 1), epcclSuccess) << epcclGetLastError(nullptr);
      EXPECT_EQ(epcclEpComplete(replayed), epcclInvalidArgument);
      EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr(what));
      EXPECT_EQ(epcclEpComplete(replayed), epcclSuccess) << epcclGetLastError(nullptr);
    };
    replay(1, context.rank == 1 ? 4 : -1);
    replay(2, context.rank == 1 ? 5 : -1);
    replay(3, -1);
    expect_told("rank 1: topk_idx[4][0] was expert 9 in a replay, but there are 2 experts");
    replay(4, context.rank == 0 ? 2 : -1);
    expect_told("rank 0: topk_idx[2][0] was expert 9");
    // What comes is what comes with -1 there.
    step.fill(5, 3);
    calls.fill(5, 3, -1);
    graph.launch();
    calls.all(called);
    ASSERT_EQ(step.difference(calls), "");
    expect_told("rank 0: topk_idx[3][0]");
  });
}

// --- what graphs keep ---

// A graph may be there longer than the handle and the communicator; it keeps their memory, and ends nothing of CUDA itself.
TEST_F(CapturedEpFaults, NothingIsLeftBehindWhateverEndsFirst) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm parent(context);
    const Problem problem = plain_problem(2);
    StaticStep step(context, gpu, problem, 6);
    const auto split = [&] {
      epcclComm_t comm = nullptr;
      EXPECT_EQ(epcclCommSplit(parent, 0, 0, &comm, nullptr), epcclSuccess) << epcclGetLastError(nullptr);
      return comm;
    };
    // Graphs of a handle and of a communicator that end before them.
    const auto capture_and_run = [&] {
      epcclComm_t comm = split();
      std::unique_ptr<Graph> graph;
      {
        const StepHandle handle(problem, comm);
        graph = std::make_unique<Graph>(gpu, [&] { step.all(handle); });
        step.fill(1);
        graph->launch();
        gpu.wait();
      }
      EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
      return graph;
    };
    capture_and_run().reset();
    capture_and_run().reset();
    const long allocations = fake_cuda_live("allocations"), imports = fake_cuda_live("imports");
    for (int i = 0; i < 3; ++i) {
      auto graph = capture_and_run();
      const long held = fake_cuda_live("allocations");
      graph.reset();
      EXPECT_EQ(fake_cuda_live("allocations"), held);
    }
    EXPECT_EQ(fake_cuda_live("graphs"), 0);
    EXPECT_EQ(fake_cuda_live("allocations"), allocations)
        << "each graph's memory ends with the next communicator";
    EXPECT_EQ(fake_cuda_live("imports"), imports);
  });
}

// --- replays that cannot go on ---

TEST_F(CapturedEpFaults, AReplayEndsWhenAPeerDies) {
  expect_a_replay_to_end({{2}, {{"EPCCL_TIMEOUT", "20"}}, {1}}, "rank 1",
                         [](epcclComm_t) { raise(SIGKILL); });
}

TEST_F(CapturedEpFaults, AReplayEndsWhenAPeerRevokes) {
  expect_a_replay_to_end({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, "revoked",
                         [](epcclComm_t comm) { EXPECT_EQ(epcclCommRevoke(comm, 0), epcclSuccess); });
}

TEST_F(CapturedEpFaults, AReplayEndsWhenAPeerDoesNotRunItAndNamesIt) {
  expect_a_replay_to_end(
      {{2}, {{"EPCCL_TIMEOUT", "2"}}, {}},
      "(ep static layout of 6 tokens top-2, kernels, captured into a graph) waited 2.0 s for "
      "rank 1 (same node) to run it as well",
      [](epcclComm_t comm) { EXPECT_NE(wait_for_failure(comm), epcclSuccess); });
}

// The other has met it, and waits for it to be through.
TEST_F(CapturedEpFaults, AReplayEndsWhenAPeerDiesWithinIt) {
  expect_replays_to_end_when_a_peer_dies_in("epccl_spread", sizeof(device::cuda::SpreadParameters), {2});
}

TEST_F(CapturedEpFaults, ReplaysOfDifferentCallsAreFoundOut) {
  run_gpu_ranks(RanksAre::processes, 2, {{"EPCCL_TIMEOUT", "20"}}, [](const RankContext& context) {
    GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    {
      const Problem problem = plain_problem(2);
      const StepHandle handle(problem, comm);
      StaticStep step(context, gpu, problem, 6);
      step.fill(0);
      const Graph update(gpu, [&] { step.update(handle); });
      const Graph dispatch(gpu, [&] { step.dispatch(handle); });
      (context.rank == 0 ? update : dispatch).launch();
      gpu.wait();
      EXPECT_NE(wait_for_failure(comm), epcclSuccess);
      EXPECT_THAT(epcclGetLastError(comm), HasSubstr("replays differ: rank"));
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
