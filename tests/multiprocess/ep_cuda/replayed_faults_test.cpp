// Updates, dispatches and combines that a thread of the library makes at each run of a graph: what is wrong is told, by whom and when, and
// a replay that cannot go on ends.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "fake_driver.hpp"
#include "plain_calls.hpp"

namespace epccl::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ReplayedEpFaults : public CudaGraphs {};

TEST_F(ReplayedEpFaults, WhatCannotBeCapturedIsRefusedAndTheCaptureGoesOn) {
  run_ranks({{1, 1}, {}, {}}, [](const RankContext& context) {
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
      expect_refused(calls.dispatch(handle), "the handle has no routing yet");
      expect_refused(calls.update(handle, &info), "recv_total_counter is host memory");
      expect_captured(calls.update(handle));
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

// The routing of kernels is the GPU's, that of calls which the host makes is the host's.
TEST_F(ReplayedEpFaults, CallsOfOneHandleAreOfOneKind) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const StepHandle handle(plain_problem(2), comm);
    PlainCalls calls(gpu, 6, 2, 6);
    gpu.wait();
    const Graph graph(gpu, [&] {
      EXPECT_EQ(epcclCommSetCopyEngine(comm, "never"), epcclSuccess);
      expect_captured(calls.update(handle));
      EXPECT_EQ(epcclCommSetCopyEngine(comm, nullptr), epcclSuccess);
      expect_refused(calls.dispatch(handle), "captured calls of this handle are made by the host");
      EXPECT_EQ(epcclCommSetCopyEngine(comm, "never"), epcclSuccess);
      expect_captured(calls.dispatch(handle));
    });
    graph.launch();
    gpu.wait();
    EXPECT_EQ(epcclEpComplete(handle), epcclSuccess) << epcclGetLastError(nullptr);
  });
}

TEST_F(ReplayedEpFaults, WhatIsWrongWithATableOfOneRankIsToldToAllByTheCall) {
  expect_wrong_tables_to_be_told({1, 1});
}

TEST_F(ReplayedEpFaults, AWrongEntryInAReplayCountsAsUnusedAndIsToldByComplete) {
  expect_wrong_entries_to_count_as_unused({2, 1});
}

// All ranks know it alike, so nothing is broken: the calls do nothing, and the routing can come yet.
TEST_F(ReplayedEpFaults, AReplayWithoutARoutingDoesNothingAndIsToldByComplete) {
  run_ranks({{1, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem problem = plain_problem(2);
    const StepHandle replayed(problem, comm), called(problem, comm);
    StaticStep step(context, gpu, problem, 6), calls(context, gpu, problem, 6),
        wrong(context, gpu, problem, 6);
    const Graph update(gpu, [&] { step.update(replayed); });
    const Graph rest(gpu, [&] {
      step.dispatch(replayed);
      step.combine(replayed);
    });
    const auto expect_told = [&](const char* what) {
      EXPECT_EQ(epcclEpComplete(replayed), epcclInvalidUsage);
      EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr(what));
    };
    rest.launch();
    gpu.wait();
    expect_told("a replay: the handle has no valid routing: the handle has no routing yet");
    step.fill(3);
    calls.fill(3);
    update.launch();
    rest.launch();
    calls.all(called);
    ASSERT_EQ(step.difference(calls), "");
    EXPECT_EQ(epcclEpComplete(replayed), epcclSuccess) << epcclGetLastError(nullptr);
    // An update that is not captured, and wrong.
    wrong.fill(4, context.rank == 1 ? 0 : -1);
    wrong.update(replayed);
    EXPECT_EQ(epcclEpComplete(replayed), epcclInvalidArgument);
    rest.launch();
    gpu.wait();
    EXPECT_EQ(epcclEpComplete(replayed), epcclInvalidArgument);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("a replay: the handle has no valid routing: rank 1"));
  });
}

// --- what graphs keep ---

TEST_F(ReplayedEpFaults, AGraphKeepsTheHandleItWasCapturedWith) {
  run_ranks({{2, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem problem = plain_problem(3);
    const StepHandle called(problem, comm);
    StaticStep step(context, gpu, problem, 6), calls(context, gpu, problem, 6);
    std::unique_ptr<Graph> graph;
    {
      const StepHandle replayed(problem, comm);
      graph = std::make_unique<Graph>(gpu, [&] { step.all(replayed); });
    }
    for (uint64_t round = 0; round < 3; ++round) {
      step.fill(round);
      calls.fill(round);
      graph->launch();
      calls.all(called);
      ASSERT_EQ(step.difference(calls), "") << "round " << round;
    }
  });
}

// It keeps neither communicator nor threads.
TEST_F(ReplayedEpFaults, NothingIsLeftBehindWhateverEndsFirst) {
  run_ranks({{1, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm parent(context);
    StaticStep step(context, gpu, plain_problem(2), 6);
    const auto threads = [] {
      std::ifstream status("/proc/self/status");
      for (std::string word; status >> word;)
        if (int count = 0; word == "Threads:" && status >> count) return count;
      return -1;
    };
    {
      const auto one = graph_that_outlives(parent, gpu, step);
      const int running = threads();
      const auto another = graph_that_outlives(parent, gpu, step);
      // Of a communicator that is gone a thread may be left behind its id; others end when nobody waits for that.
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (threads() >= running + 5 && std::chrono::steady_clock::now() < end) usleep(1000);
      EXPECT_LT(threads(), running + 5) << "the communicator of a graph that is still there lives on";
    }
    expect_graphs_to_leave_nothing(parent, gpu, step);
  });
}

// Graphs of many sizes, as programs have them that decode: what their calls use of the library is the handle's.
TEST_F(ReplayedEpFaults, GraphsOfAHandleShareItsMemory) {
  run_ranks({{1, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Problem problem = plain_problem(2);
    const StepHandle replayed(problem, comm), called(problem, comm);
    std::vector<std::unique_ptr<StaticStep>> steps;
    for (uint32_t tokens = 0; tokens <= 6; ++tokens)
      steps.push_back(std::make_unique<StaticStep>(context, gpu, problem, tokens, GpuMemoryKind::unmappable));
    StaticStep calls(context, gpu, problem, 3);
    std::vector<std::unique_ptr<Graph>> graphs;
    const auto capture = [&](StaticStep& step) {
      graphs.push_back(std::make_unique<Graph>(gpu, [&] {
        step.dispatch(replayed);
        step.combine(replayed);
      }));
    };
    const auto capture_all = [&] {
      for (auto& step : steps) {
        step->fill(1);
        step->update(replayed);
        // Until then it has memory of its own.
        EXPECT_EQ(epcclEpComplete(replayed), epcclSuccess) << epcclGetLastError(nullptr);
        capture(*step);
      }
    };
    capture_all();
    const long allocations = fake_cuda_live("allocations");
    capture_all();
    capture_all();
    EXPECT_EQ(fake_cuda_live("allocations"), allocations);
    steps[3]->fill(2);
    calls.fill(2);
    steps[3]->update(replayed);
    graphs[3]->launch();
    calls.all(called);
    ASSERT_EQ(steps[3]->difference(calls), "");
  });
}

// --- replays that cannot go on ---

TEST_F(ReplayedEpFaults, AReplayEndsWhenAPeerDies) {
  expect_a_replay_to_end({{1, 1}, {{"EPCCL_TIMEOUT", "20"}}, {1}}, names_the_dead(1),
                         [](epcclComm_t) { raise(SIGKILL); });
}

TEST_F(ReplayedEpFaults, AReplayEndsWhenAPeerRevokes) {
  expect_a_replay_to_end({{1, 1}, {{"EPCCL_TIMEOUT", "20"}}, {}}, HasSubstr("revoked"),
                         [](epcclComm_t comm) { EXPECT_EQ(epcclCommRevoke(comm, 0), epcclSuccess); });
}

TEST_F(ReplayedEpFaults, AReplayEndsWhenAPeerDoesNotRunItAndNamesIt) {
  expect_a_replay_to_end({{1, 1}, {{"EPCCL_TIMEOUT", "12"}}, {}},
                         AllOf(HasSubstr("timeout: "), HasSubstr("rank 1")),
                         [](epcclComm_t comm) { EXPECT_NE(wait_for_failure(comm), epcclSuccess); });
}

// Those of its node wait for its counters, those of others for its messages.
TEST_F(ReplayedEpFaults, AReplayEndsWhenAPeerDiesWithinIt) {
  expect_replays_to_end_when_a_peer_dies_in("epccl_move", sizeof(device::kernels::MoveParameters), {2, 1});
}

// Rows of one routing in a call that was captured for another number of tokens.
TEST_F(ReplayedEpFaults, AReplayOfOtherTokensThanTheRoutingEndsTheCommunicator) {
  run_ranks({{1, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    {
      const StepHandle handle(plain_problem(2), comm);
      PlainCalls six(gpu, 6, 2, 6), four(gpu, 4, 2, 6);
      gpu.wait();
      const Graph graph_of_six(gpu, [&] {
        expect_captured(six.update(handle));
        expect_captured(six.dispatch(handle));
      });
      const Graph dispatch_of_six(gpu, [&] { expect_captured(six.dispatch(handle)); });
      graph_of_six.launch();
      gpu.wait();
      EXPECT_EQ(four.update(handle), epcclSuccess) << epcclGetLastError(nullptr);
      gpu.wait();
      context.meet();  // what the replay finds ends calls of others that are under way
      dispatch_of_six.launch();
      gpu.wait();
      EXPECT_NE(wait_for_failure(comm), epcclSuccess);
      EXPECT_THAT(epcclGetLastError(comm), HasSubstr("6 tokens, but the handle's topk_idx has 4"));
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

TEST_F(ReplayedEpFaults, ReplaysOfDifferentCallsAreFoundOut) {
  run_ranks({{1, 1}, {{"EPCCL_TIMEOUT", "20"}}, {}}, [](const RankContext& context) {
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
      update.launch();
      gpu.wait();
      (context.rank == 0 ? update : dispatch).launch();
      gpu.wait();
      EXPECT_NE(wait_for_failure(comm), epcclSuccess);
      EXPECT_THAT(epcclGetLastError(comm),
                  AllOf(HasSubstr("ranks disagree in call #"),
                        HasSubstr("ep static layout of 6 tokens top-2"), HasSubstr("ep dispatch hidden 40")));
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
