// Collectives captured into CUDA graphs, through the C API: what a graph's runs do is what the calls do. On the double of the driver
// a graph's branches run in a random order, one step after the other.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "graph_rank.hpp"

namespace epccl::tests {
namespace {

class CudaGraphsOfRanks : public CudaGraphs, public ::testing::WithParamInterface<RanksAre> {};
INSTANTIATE_TEST_SUITE_P(Are, CudaGraphsOfRanks, ::testing::Values(RanksAre::processes, RanksAre::threads),
                         [](const auto& it) {
                           return it.param == RanksAre::threads ? "Threads" : "Processes";
                         });

TEST_P(CudaGraphsOfRanks, ReplayAnAlltoallWithNewDataInEveryMode) {
  run_gpu_ranks(GetParam(), 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    Exchanged exchanged(context, gpu, 700);
    std::vector<CUstreamCaptureMode> modes{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                           CU_STREAM_CAPTURE_MODE_RELAXED};
    // It would forbid the other thread's program to allocate.
    if (GetParam() == RanksAre::processes) modes.push_back(CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (const auto mode : modes) {
      const Graph graph(
          gpu, [&] { expect_captured(exchanged.call(comm, gpu.as_epccl())); }, mode);
      for (int round = 0; round < 4; ++round) {
        exchanged.fill(round);
        graph.launch();
        exchanged.expect(round);
      }
    }
  });
}

// Two launches in a row, graphs in turns, calls that are not captured between, a graph that is never run.
TEST_P(CudaGraphsOfRanks, AlternateAndMixWithOtherCalls) {
  run_gpu_ranks(GetParam(), 3, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    Exchanged small(context, gpu, 10), large(context, gpu, 3000), direct(context, gpu, 100);
    const Graph never(gpu, [&] { expect_captured(large.call(comm, gpu.as_epccl())); });
    const Graph one(gpu, [&] { expect_captured(small.call(comm, gpu.as_epccl())); });
    const Graph both(gpu, [&] {
      expect_captured(large.call(comm, gpu.as_epccl()));
      expect_captured(small.call(comm, gpu.as_epccl()));
    });
    for (int round = 0; round < 5; ++round) {
      small.fill(round);
      large.fill(round);
      direct.fill(round);
      one.launch();
      one.launch();
      both.launch();
      EXPECT_EQ(direct.call(comm, gpu.as_epccl()), epcclSuccess);
      both.launch();
      small.expect(round);
      large.expect(round);
      direct.expect(round);
    }
  });
}

// --- any collective ---

unsigned test_seed() {
  const char* given = std::getenv("EPCCL_TEST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
}

struct RandomCall {
  int kind = 0, root = 0;
  size_t count = 0;  // of a block
  bool in_place = false;
  epcclRedOp_t operation = epcclSum;
};

RandomCall random_call(std::mt19937& random, int ranks) {
  RandomCall call;
  call.kind = static_cast<int>(random() % 7);
  call.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  call.count = random() % 3 == 0 ? 1 + random() % 5 : 1 + random() % 4000;
  call.in_place = random() % 3 == 0;
  call.operation = random() % 2 == 0 ? epcclSum : epcclMax;
  return call;
}

/// `input` and `output` have room for a block of every rank. In place, `output` holds the input as well.
epcclResult_t issue(const RandomCall& call, const RankContext& context, float* input, float* output,
                    epcclComm_t comm, epcclStream_t stream) {
  const auto rank = static_cast<size_t>(context.rank);
  float* const own_in = call.in_place ? output + rank * call.count : input;
  float* const own_out = call.in_place ? input + rank * call.count : output;
  float* const same = call.in_place ? output : input;
  switch (call.kind) {
    case 0:
      return epcclAllGather(own_in, output, call.count, epcclFloat32, comm, stream);
    case 1:
      return epcclReduceScatter(input, own_out, call.count, epcclFloat32, call.operation, comm, stream);
    case 2:
      return epcclAllReduce(same, output, call.count, epcclFloat32, call.operation, comm, stream);
    case 3:
      return epcclBroadcast(same, output, call.count, epcclFloat32, call.root, comm, stream);
    case 4:
      return epcclReduce(same, output, call.count, epcclFloat32, call.operation, call.root, comm, stream);
    case 5:
      return epcclGather(context.rank == call.root ? own_in : input, output, call.count, epcclFloat32,
                         call.root, comm, stream);
    default:
      return epcclScatter(input, context.rank == call.root ? own_out : output, call.count, epcclFloat32,
                          call.root, comm, stream);
  }
}

std::vector<float> random_floats(size_t count, int rank, int round, bool output) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + round * 2 + (output ? 1 : 0)));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 100'000) / 7;
  return values;
}

// Every case twice, with the same data: as calls, and as a graph. Buffers are all that a call may touch, before and after.
TEST_P(CudaGraphsOfRanks, DoWhatTheCallsDoBitForBit) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(fmt::format("EPCCL_TEST_SEED={}", seed));
  run_gpu_ranks(GetParam(), 3, {{"EPCCL_SCRATCH_SIZE", "64K"}}, [seed](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    std::mt19937 random(seed);
    for (int repetition = 0; repetition < 12; ++repetition) {
      std::vector<RandomCall> calls(1 + random() % 2);
      size_t most = 0;
      for (RandomCall& call : calls) {
        call = random_call(random, context.ranks);
        most = std::max(most, call.count);
      }
      const size_t room = most * static_cast<size_t>(context.ranks);
      GpuArray<float> input(gpu, room), output(gpu, room), input2(gpu, room), output2(gpu, room);
      const auto issue_all = [&](const GpuArray<float>& from, const GpuArray<float>& to) {
        for (const RandomCall& call : calls)
          expect_captured(issue(call, context, from.data(), to.data(), comm, gpu.as_epccl()));
      };
      const Graph graph(gpu, [&] { issue_all(input, output); });
      for (int round = 0; round < 3; ++round) {
        const auto in = random_floats(room, context.rank, round, false),
                   out = random_floats(room, context.rank, round, true);
        input.put(in);
        output.put(out);
        input2.put(in);
        output2.put(out);
        graph.launch();
        issue_all(input2, output2);
        for (const RandomCall& call : calls)
          SCOPED_TRACE(fmt::format("repetition {}: kind {}, count {}, root {}, in place {}", repetition,
                                   call.kind, call.count, call.root, call.in_place));
        ASSERT_EQ(input.get(), input2.get()) << "repetition " << repetition << ", round " << round;
        ASSERT_EQ(output.get(), output2.get()) << "repetition " << repetition << ", round " << round;
      }
    }
  });
}

TEST_F(CudaGraphs, OfARankAloneWork) {
  run_gpu_ranks(RanksAre::processes, 1, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    Exchanged exchanged(context, gpu, 50), nothing(context, gpu, 0);
    const Graph graph(gpu, [&] {
      expect_captured(exchanged.call(comm, gpu.as_epccl()));
      expect_captured(nothing.call(comm, gpu.as_epccl()));
    });
    for (int round = 0; round < 2; ++round) {
      exchanged.fill(round);
      graph.launch();
      exchanged.expect(round);
    }
  });
}

// One thread, two ranks: their calls meet at the end of the group, one after the other.
TEST_F(CudaGraphs, OfSeveralRanksOfOneThreadAreCapturedInAGroup) {
  run_gpu_ranks(RanksAre::processes, 1, {}, [](const RankContext&) {
    GpuRank gpus[2];
    epcclComm_t comms[2] = {};
    ASSERT_EQ(epcclCommInitAll(comms, 2, nullptr), epcclSuccess);
    Exchanged first({0, 2, {}}, gpus[0], 300), second({1, 2, {}}, gpus[1], 300);
    std::unique_ptr<Graph> graphs[2];
    {
      Capture captures[2] = {Capture(gpus[0], CU_STREAM_CAPTURE_MODE_RELAXED),
                             Capture(gpus[1], CU_STREAM_CAPTURE_MODE_RELAXED)};
      EXPECT_EQ(epcclGroupStart(), epcclSuccess);
      for (int call = 0; call < 2; ++call) expect_captured(first.call(comms[0], gpus[0].as_epccl()));
      for (int call = 0; call < 2; ++call) expect_captured(second.call(comms[1], gpus[1].as_epccl()));
      EXPECT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(nullptr);
      for (int rank = 0; rank < 2; ++rank) graphs[rank] = std::make_unique<Graph>(gpus[rank], captures[rank]);
    }
    for (int round = 0; round < 3; ++round) {
      first.fill(round);
      second.fill(round);
      graphs[0]->launch();
      graphs[1]->launch();
      first.expect(round);
      second.expect(round);
    }
    for (auto& graph : graphs) graph.reset();
    for (epcclComm_t comm : comms) EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

/// An alltoall of each of two communicators in one group, which ranks issue in different orders.
void expect_captured_in_a_group(const RankContext& context, epcclComm_t first, epcclComm_t second,
                                const Exchanged& of_first, const Exchanged& of_second, epcclStream_t stream) {
  EXPECT_EQ(epcclGroupStart(), epcclSuccess);
  if (context.rank == 0) expect_captured(of_first.call(first, stream));
  expect_captured(of_second.call(second, stream));
  if (context.rank != 0) expect_captured(of_first.call(first, stream));
  expect_captured(epcclGroupEnd());
}

// In a graph they are one after the other: in other orders a rank would wait in one for another rank that waits in the other.
TEST_P(CudaGraphsOfRanks, OfSeveralCommunicatorsHaveTheCallsOfAGroupInOneOrder) {
  run_gpu_ranks(GetParam(), 3, {{"EPCCL_TIMEOUT", "10"}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Twin twin(comm);
    Exchanged one(context, gpu, 20), other(context, gpu, 30);
    for (int capture = 0; capture < 10; ++capture) {
      const Graph graph(gpu,
                        [&] { expect_captured_in_a_group(context, comm, twin, one, other, gpu.as_epccl()); });
      for (int round = 0; round < 2; ++round) {
        one.fill(round);
        other.fill(round);
        graph.launch();
        one.expect(round);
        other.expect(round);
      }
    }
  });
}

// Other threads have other streams by this name.
TEST_F(CudaGraphs, OfTheThreadsOwnStreamHoldTheCallsOfSeveralCommunicators) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const Twin twin(comm);
    Exchanged one(context, gpu, 20), other(context, gpu, 30);
    MUST(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    expect_captured_in_a_group(context, comm, twin, one, other,
                               reinterpret_cast<epcclStream_t>(CU_STREAM_PER_THREAD));
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    MUST(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    MUST(cuGraphDestroy(graph));
    one.fill(1);
    other.fill(1);
    gpu.wait();
    MUST(cuGraphLaunch(executable, CU_STREAM_PER_THREAD));
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    one.expect(1);
    other.expect(1);
    MUST(cuGraphExecDestroy(executable));
  });
}

}  // namespace
}  // namespace epccl::tests
