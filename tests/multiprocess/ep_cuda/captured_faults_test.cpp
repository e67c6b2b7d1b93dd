// Updates, dispatches and combines in CUDA graphs: what cannot be captured is refused, what is wrong with a table in a replay is told,
// and a replay that cannot go on ends.
#include <gmock/gmock.h>
#include <signal.h>

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
  expect_wrong_tables_to_be_told({2});
}

TEST_F(CapturedEpFaults, AWrongEntryInAReplayCountsAsUnusedAndIsToldByComplete) {
  expect_wrong_entries_to_count_as_unused({3});
}

// --- what graphs keep ---

// It keeps their memory, and ends nothing of CUDA itself.
TEST_F(CapturedEpFaults, NothingIsLeftBehindWhateverEndsFirst) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm parent(context);
    StaticStep step(context, gpu, plain_problem(2), 6);
    expect_graphs_to_leave_nothing(parent, gpu, step);
  });
}

// --- replays that cannot go on ---

TEST_F(CapturedEpFaults, AReplayEndsWhenAPeerDies) {
  expect_a_replay_to_end({{2}, {{"EPCCL_TIMEOUT", "20"}}, {1}}, names_the_dead(1),
                         [](epcclComm_t) { raise(SIGKILL); });
}

TEST_F(CapturedEpFaults, AReplayEndsWhenAPeerRevokes) {
  expect_a_replay_to_end({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, HasSubstr("revoked"),
                         [](epcclComm_t comm) { EXPECT_EQ(epcclCommRevoke(comm, 0), epcclSuccess); });
}

TEST_F(CapturedEpFaults, AReplayEndsWhenAPeerDoesNotRunItAndNamesIt) {
  expect_a_replay_to_end(
      {{2}, {{"EPCCL_TIMEOUT", "12"}}, {}},
      HasSubstr(
          "(ep static layout of 6 tokens top-2, handle 2, kernels, captured into a graph) waited 12.0 s for "
          "rank 1 (same node) to run it as well"),
      [](epcclComm_t comm) { EXPECT_NE(wait_for_failure(comm), epcclSuccess); });
}

// The other has met it, and waits for it to be through.
TEST_F(CapturedEpFaults, AReplayEndsWhenAPeerDiesWithinIt) {
  expect_replays_to_end_when_a_peer_dies_in("epccl_spread", sizeof(device::kernels::SpreadParameters), {2});
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
