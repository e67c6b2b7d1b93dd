// CUDA graphs: what cannot be captured is refused, and a replay that cannot go on ends.
#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "../api/names_the_dead.hpp"
#include "graph_rank.hpp"

namespace epccl::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaGraphFaults : public CudaGraphs {};

// --- what cannot be captured ---

// The communicator and the capture are as they were.
TEST_F(CudaGraphFaults, AreRefusedGroupsOfWhichTheyCannotHoldAll) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu, other;
    const Comm comm(context);
    const GpuArray<float> in(gpu, 10), out(gpu, 10);
    std::vector<float> on_host(10);
    const int peer = 1 - context.rank;
    gpu.wait();
    const auto refuse = [&](void* received, epcclStream_t stream, const char* why) {
      EXPECT_EQ(epcclGroupStart(), epcclSuccess);
      EXPECT_EQ(epcclSend(in.data(), 10, epcclFloat32, peer, comm, gpu.as_epccl()), epcclSuccess);
      EXPECT_EQ(epcclRecv(received, 10, epcclFloat32, peer, comm, stream), epcclSuccess);
      EXPECT_EQ(epcclGroupEnd(), epcclInvalidUsage);
      EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr(why));
    };
    const Graph graph(gpu, [&] {
      refuse(out.data(), other.as_epccl(),
             "it is not captured, and other sends and receives of its group are");
      refuse(on_host.data(), nullptr, "it is not captured, and other sends and receives of its group are");
      {
        const Capture second(other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        refuse(out.data(), other.as_epccl(), "the group has calls of this communicator in another graph");
      }
      expect_captured(epcclAlltoall(in.data(), out.data(), 5, epcclFloat32, comm, gpu.as_epccl()));
    });
    graph.launch();
    gpu.wait();
  });
}

// A replay would wait in one rank's call for the other's, which comes behind it.
TEST_F(CudaGraphFaults, AreRefusedRanksOfOneThreadOnOneStream) {
  run_gpu_ranks(RanksAre::processes, 1, {}, [](const RankContext&) {
    const GpuRank gpu;
    epcclComm_t comms[2] = {};
    ASSERT_EQ(epcclCommInitAll(comms, 2, nullptr), epcclSuccess);
    const Exchanged first({0, 2, {}}, gpu, 30), second({1, 2, {}}, gpu, 30);
    for (const char* engine : {"auto", "never"}) {
      for (epcclComm_t comm : comms) ASSERT_EQ(epcclCommSetCopyEngine(comm, engine), epcclSuccess);
      const Capture capture(gpu, CU_STREAM_CAPTURE_MODE_RELAXED);
      EXPECT_EQ(epcclGroupStart(), epcclSuccess);
      expect_captured(first.call(comms[0], gpu.as_epccl()));
      expect_captured(second.call(comms[1], gpu.as_epccl()));
      EXPECT_EQ(epcclGroupEnd(), epcclInvalidUsage);
      EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("need a stream each while they are captured"));
    }
    for (epcclComm_t comm : comms) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST_F(CudaGraphFaults, ThatOneRankCapturesAndAnotherDoesNotAreAnError) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    Exchanged exchanged(context, gpu, 10);
    exchanged.fill(0);
    if (context.rank == 0) {
      EXPECT_EQ(exchanged.call(comm, gpu.as_epccl()), epcclSuccess);
      gpu.wait();
    } else {
      EXPECT_EQ(cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
      EXPECT_NE(exchanged.call(comm, gpu.as_epccl()), epcclSuccess);
      EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("captured into a graph"));
      CUgraph graph = nullptr;
      EXPECT_EQ(cuStreamEndCapture(gpu.stream(), &graph), CUDA_SUCCESS);
      cuGraphDestroy(graph);
    }
    EXPECT_NE(wait_for_failure(comm), epcclSuccess);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

// --- failures while a graph runs ---

/// Two ranks with a graph that ran once. `fail` is rank 1's; then rank 0 runs the graph again, alone.
void expect_a_replay_to_end(const RunOptions& options, const ::testing::Matcher<std::string>& said,
                            const std::function<void(epcclComm_t)>& fail) {
  run_ranks(options, [&](const RankContext& context) {
    GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    {
      Exchanged exchanged(context, gpu, 200);
      const Graph graph(gpu, [&] { expect_captured(exchanged.call(comm, gpu.as_epccl())); });
      exchanged.fill(0);
      graph.launch();
      exchanged.expect(0);
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

TEST_F(CudaGraphFaults, EndWhenAPeerDies) {
  expect_a_replay_to_end({{2}, {{"EPCCL_TIMEOUT", "20"}}, {1}}, names_the_dead(1),
                         [](epcclComm_t) { raise(SIGKILL); });
}

TEST_F(CudaGraphFaults, EndWhenAPeerAborts) {
  expect_a_replay_to_end({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, HasSubstr("abort"), [](epcclComm_t) {});
}

TEST_F(CudaGraphFaults, EndWhenAPeerRevokes) {
  expect_a_replay_to_end({{2}, {{"EPCCL_TIMEOUT", "20"}}, {}}, HasSubstr("revoked"),
                         [](epcclComm_t comm) { EXPECT_EQ(epcclCommRevoke(comm, 0), epcclSuccess); });
}

TEST_F(CudaGraphFaults, EndWhenAPeerDoesNotRunThemAndNameIt) {
  expect_a_replay_to_end({{2}, {{"EPCCL_TIMEOUT", "12"}}, {}},
                         HasSubstr("for rank 1 (same node) to run it as well"),
                         [](epcclComm_t comm) { EXPECT_NE(wait_for_failure(comm), epcclSuccess); });
}

// The same of calls that a thread of the library makes.
TEST_F(CudaGraphFaults, EndWhenAPeerOfAnotherNodeDies) {
  expect_a_replay_to_end({{1, 1}, {{"EPCCL_TIMEOUT", "20"}}, {1}}, names_the_dead(1),
                         [](epcclComm_t) { raise(SIGKILL); });
}

TEST_F(CudaGraphFaults, EndWhenAPeerOfAnotherNodeAborts) {
  expect_a_replay_to_end({{1, 1}, {{"EPCCL_TIMEOUT", "20"}}, {}}, HasSubstr("abort"), [](epcclComm_t) {});
}

TEST_F(CudaGraphFaults, EndWhenAPeerOfAnotherNodeRevokes) {
  expect_a_replay_to_end({{1, 1}, {{"EPCCL_TIMEOUT", "20"}}, {}}, HasSubstr("revoked"),
                         [](epcclComm_t comm) { EXPECT_EQ(epcclCommRevoke(comm, 0), epcclSuccess); });
}

TEST_F(CudaGraphFaults, EndWhenAPeerOfAnotherNodeDoesNotRunThemAndNameIt) {
  expect_a_replay_to_end({{1, 1}, {{"EPCCL_TIMEOUT", "12"}}, {}},
                         AllOf(HasSubstr("timeout: "), HasSubstr("rank 1")),
                         [](epcclComm_t comm) { EXPECT_NE(wait_for_failure(comm), epcclSuccess); });
}

/// With which the graph itself makes an alltoall, and the host.
class CudaGraphsBothWays : public CudaGraphs, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(CopyEngines, CudaGraphsBothWays, ::testing::Values("auto", "never"),
                         [](const auto& it) { return it.param; });

TEST_P(CudaGraphsBothWays, EndWhenTheirOwnRankAborts) {
  const std::vector<std::pair<std::string, std::string>> environment{{"EPCCL_TIMEOUT", "20"},
                                                                     {"EPCCL_COPY_ENGINE", GetParam()}};
  run_gpu_ranks(RanksAre::threads, 2, environment, [](const RankContext& context) {
    static std::atomic<int> captured{0}, through{0};
    const auto wait_for_both = [](std::atomic<int>& arrived) {
      for (++arrived; arrived < 2;) std::this_thread::yield();
    };
    GpuRank gpu;
    Exchanged exchanged(context, gpu, 200);
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    {
      const Graph graph(gpu, [&] { expect_captured(exchanged.call(comm, gpu.as_epccl())); });
      wait_for_both(captured);
      if (context.rank == 0) graph.launch();
      EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
      gpu.wait();
    }
    // What the other's graph reads may go only now.
    wait_for_both(through);
  });
}

TEST_F(CudaGraphFaults, OfDifferentCallsAreFoundOut) {
  run_gpu_ranks(RanksAre::processes, 2, {{"EPCCL_TIMEOUT", "20"}}, [](const RankContext& context) {
    GpuRank gpu;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    {
      Exchanged exchanged(context, gpu, 20), other(context, gpu, 30);
      const Graph one(gpu, [&] { expect_captured(exchanged.call(comm, gpu.as_epccl())); });
      const Graph two(gpu, [&] { expect_captured(other.call(comm, gpu.as_epccl())); });
      (context.rank == 0 ? one : two).launch();
      gpu.wait();
      EXPECT_NE(wait_for_failure(comm), epcclSuccess);
      EXPECT_THAT(epcclGetLastError(comm), HasSubstr("replays differ: rank"));
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  });
}

}  // namespace
}  // namespace epccl::tests
