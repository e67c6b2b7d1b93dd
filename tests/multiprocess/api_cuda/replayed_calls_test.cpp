// Captured calls that a thread of the library makes at each run of the graph: of several nodes, of sizes that each rank knows alone, and
// what is staged through the host. What they do is what the calls do.
#include <gmock/gmock.h>
#include <signal.h>

#include <array>

#include "drawn_calls.hpp"
#include "graph_rank.hpp"
#include "letters.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;
using Environment = std::vector<std::pair<std::string, std::string>>;

class CudaReplayedCalls : public CudaGraphs {};

TEST_F(CudaReplayedCalls, ReplayAnAlltoallOverNodesWithNewData) {
  run_ranks({{2, 2}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    Exchanged exchanged(context, gpu, 700);
    const Graph graph(gpu, [&] { expect_captured(exchanged.call(comm, gpu.as_epccl())); });
    for (int round = 0; round < 3; ++round) {
      exchanged.fill(round);
      graph.launch();
      exchanged.expect(round);
    }
  });
}

/// A drawn call, captured once and run several times with new data: its bytes are those of the call on host memory.
void expect_the_hosts_bytes_replayed(const DrawnCall& call, const RankContext& context, epcclComm_t comm,
                                     GpuRank& gpu, GpuMemoryKind kind) {
  const GpuMemory memory(kind, call.memory(context.rank).size());
  auto* there = reinterpret_cast<std::byte*>(memory.address());
  const Graph graph(gpu, [&] { expect_captured(call.call(context.rank, there, comm, gpu.as_epccl())); });
  for (uint64_t round = 0; round < 3; ++round) {
    const std::vector<std::byte> initial = call.memory(context.rank, round);
    std::vector<std::byte> expected = initial, got(initial.size());
    ASSERT_EQ(call.call(context.rank, expected.data(), comm, nullptr), epcclSuccess)
        << epcclGetLastError(nullptr);
    copy_on(gpu, there, initial.data(), initial.size());
    graph.launch();
    gpu.wait();
    copy_on(gpu, got.data(), there, got.size());
    gpu.wait();
    ASSERT_TRUE(got == expected) << "rank " << context.rank << ", round " << round << ": " << call.text();
  }
}

template <size_t Kinds>
void replay_drawn(const std::vector<int>& nodes, const Environment& environment,
                  const std::array<Drawn, Kinds>& kinds) {
  const uint64_t seed = drawn_seed();
  run_ranks({nodes, environment, {}}, [&](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937_64 random(seed), own(seed + 1 + static_cast<uint64_t>(context.rank));
    for (int repetition = 0; repetition < 6; ++repetition) {
      const DrawnCall call(kinds[random() % kinds.size()], random, context.ranks, 20'000);
      const bool is_odd = own() % 4 == 0;
      expect_the_hosts_bytes_replayed(call, context, comm, gpu,
                                      is_odd ? GpuMemoryKind::unmappable : GpuMemoryKind::plain);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

constexpr std::array every_kind{Drawn::alltoall,  Drawn::alltoallv,      Drawn::allgather,
                                Drawn::broadcast, Drawn::gather,         Drawn::scatter,
                                Drawn::allreduce, Drawn::reduce_scatter, Drawn::reduce};

TEST_F(CudaReplayedCalls, DoWhatTheHostDoesOverNodes) {
  replay_drawn({2, 2}, {}, every_kind);
}

TEST_F(CudaReplayedCalls, DoWhatTheHostDoesStaged) {
  replay_drawn({1, 2}, {{"EPCCL_COPY_ENGINE", "never"}, {"EPCCL_STAGE_SIZE", "3000"}}, every_kind);
}

TEST_F(CudaReplayedCalls, DoWhatTheHostDoesStagedOnOneNode) {
  replay_drawn({2}, {{"EPCCL_COPY_ENGINE", "never"}}, every_kind);
}

TEST_F(CudaReplayedCalls, MoveBlocksOfAnySizeOnOneNode) {
  replay_drawn({3}, {}, std::array{Drawn::alltoallv});
}

/// The other stream goes on when this one has come here.
void order(const GpuRank& earlier, const GpuRank& later) {
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventRecord(event, earlier.stream()));
  MUST(cuStreamWaitEvent(later.stream(), event, 0));
  MUST(cuEventDestroy(event));
}

// Two launches in a row, graphs in turns, and between them calls that are not captured: behind the graph in its stream, and in a stream
// that waits for it. These are issued before the graph has come to its own calls, which go first all the same.
TEST_F(CudaReplayedCalls, TakeTurnsWithCallsOfStreamsThatWaitForThem) {
  run_ranks({{2, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu, second;
    const Comm comm(context);
    Exchanged small(context, gpu, 10), large(context, gpu, 3000), behind(context, gpu, 100),
        beside(context, gpu, 200);
    const Graph one(gpu, [&] { expect_captured(small.call(comm, gpu.as_epccl())); });
    const Graph both(gpu, [&] {
      expect_captured(large.call(comm, gpu.as_epccl()));
      expect_captured(small.call(comm, gpu.as_epccl()));
    });
    for (int round = 0; round < 4; ++round) {
      for (Exchanged* each : {&small, &large, &behind, &beside}) each->fill(round);
      one.launch();
      one.launch();
      both.launch();
      EXPECT_EQ(behind.call(comm, gpu.as_epccl()), epcclSuccess);
      both.launch();
      order(gpu, second);
      EXPECT_EQ(beside.call(comm, second.as_epccl()), epcclSuccess);
      order(second, gpu);
      one.launch();
      for (const Exchanged* each : {&small, &large, &behind, &beside}) each->expect(round);
    }
  });
}

// One by kernels and copies of the graph, one by the host, on two branches.
TEST_F(CudaReplayedCalls, ShareAGraphWithCallsThatItMakesItself) {
  run_gpu_ranks(RanksAre::processes, 3, {}, [](const RankContext& context) {
    GpuRank gpu, second;
    const Comm comm(context);
    Exchanged by_graph(context, gpu, 500), by_host(context, gpu, 600), last(context, gpu, 70);
    const Graph graph(gpu, [&] {
      order(gpu, second);
      expect_captured(by_graph.call(comm, gpu.as_epccl()));
      EXPECT_EQ(epcclCommSetCopyEngine(comm, "never"), epcclSuccess);
      expect_captured(by_host.call(comm, second.as_epccl()));
      EXPECT_EQ(epcclCommSetCopyEngine(comm, nullptr), epcclSuccess);
      expect_captured(last.call(comm, gpu.as_epccl()));
      order(second, gpu);
    });
    for (int round = 0; round < 4; ++round) {
      for (Exchanged* each : {&by_graph, &by_host, &last}) each->fill(round);
      graph.launch();
      for (const Exchanged* each : {&by_graph, &by_host, &last}) each->expect(round);
    }
  });
}

// --- sends and receives ---

/// The second stream joins the first one's capture, and comes back.
template <typename Record>
void record_in_both(const GpuRank& first, const GpuRank& second, Record record) {
  order(first, second);
  record();
  order(second, first);
}

// Groups that are captured and groups that are not take turns: a message's number is that of its run.
void replay_patterns(const RankContext& context, uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);  // the same on every rank
  const GpuRank first, second;
  const Comm comm(context);
  std::vector<Letter> all;
  for (int from = 0; from < context.ranks; ++from)
    for (int to = 0; to < context.ranks; ++to) all.push_back({from, to, 10'000, plain, plain});
  Half eager(context.rank, all, first, second, 1);
  eager.run(comm);
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    Half half(context.rank, pattern(context.ranks, random, false), first, second, 1000 * round);
    first.wait();
    second.wait();
    const Graph graph(first, [&] {
      record_in_both(first, second, [&] {
        ASSERT_EQ(epcclGroupStart(), epcclSuccess);
        half.issue(comm);
        ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
      });
    });
    for (int run = 0; run < 3; ++run) {
      half.fill(1000 * round + 100 * run);
      second.wait();
      graph.launch();
      eager.fill(1000 * round + 100 * run + 50);
      eager.run(comm);
      first.wait();
      half.check();
    }
  }
}

TEST_F(CudaReplayedCalls, BringRandomMessages) {
  const uint64_t seed = new_seed();
  for (const RanksAre are : {RanksAre::processes, RanksAre::threads})
    run_gpu_ranks(are, 3, {{"EPCCL_DEVICE", "cuda"}},
                  [seed](const RankContext& context) { replay_patterns(context, seed, 3); });
}

TEST_F(CudaReplayedCalls, BringRandomMessagesOverNodes) {
  const uint64_t seed = new_seed();
  run_ranks({{2, 2}, {{"EPCCL_DEVICE", "cuda"}}, {}},
            [seed](const RankContext& context) { replay_patterns(context, seed, 3); });
}

// Each rank issues them in another order, all in the same stream.
TEST_F(CudaReplayedCalls, BringMessagesOfTwoCommunicatorsTogether) {
  run_gpu_ranks(RanksAre::processes, 3, {}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm a(context), b(another(context, a));
    std::vector<Letter> letters;
    for (int from = 0; from < 3; ++from)
      for (int to = 0; to < 3; ++to) letters.push_back({from, to, 5000, plain, plain});
    Half in_a(context.rank, letters, gpu, gpu, 1), in_b(context.rank, letters, gpu, gpu, 50);
    const Graph graph(gpu, [&] {
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      if (context.rank % 2 == 0) in_a.issue(a);
      in_b.issue(b);
      if (context.rank % 2 != 0) in_a.issue(a);
      ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(a) << epcclGetLastError(b);
    });
    for (int round = 0; round < 3; ++round) {
      in_a.fill(100 * round);
      in_b.fill(100 * round + 50);
      graph.launch();
      in_a.check();
      in_b.check();
    }
  });
}

}  // namespace
}  // namespace epccl::tests
