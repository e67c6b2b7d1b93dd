// All-to-all with CUDA memory is EPCCL's own where its copy engines can, and everything else goes to the real NCCL. The double of the
// driver has streams that run; the real NCCL's double copies in them.
#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "asked.hpp"
#include "fake_driver.hpp"
#include "gpu_rank.hpp"

namespace nccl_programs {
namespace {

using epccl::tests::GpuArray;
using epccl::tests::GpuRank;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// Differs for every source and destination.
int element(int source, int destination) {
  return 1000 * (source + 1) + destination;
}

std::vector<int> sent_by(const RankContext& context) {
  std::vector<int> values;
  for (int peer = 0; peer < context.ranks; ++peer) values.push_back(element(context.rank, peer));
  return values;
}

std::vector<int> expected_at(const RankContext& context) {
  std::vector<int> values;
  for (int peer = 0; peer < context.ranks; ++peer) values.push_back(element(peer, context.rank));
  return values;
}

ncclResult_t alltoall(const GpuArray<int>& in, const GpuArray<int>& out, ncclComm_t comm,
                      cudaStream_t stream) {
  return ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, stream);
}

/// A rank's in- and output in GPU memory.
struct Buffers {
  Buffers(const GpuRank& gpu, const RankContext& context)
      : in(gpu, sent_by(context)), out(gpu, std::vector<int>(static_cast<size_t>(context.ranks), -1)) {}
  GpuArray<int> in, out;
};

void expect_native(const RankContext& context, const GpuRank& gpu, ncclComm_t comm) {
  const Buffers buffers(gpu, context);
  asked_of_real();
  NCCL_OK(alltoall(buffers.in, buffers.out, comm, gpu.stream()));
  EXPECT_EQ(buffers.out.get(), expected_at(context));
  EXPECT_THAT(asked_of_real(), IsEmpty());
}

void expect_passed_on(const RankContext& context, const GpuRank& gpu, ncclComm_t comm) {
  const Buffers buffers(gpu, context);
  asked_of_real();
  NCCL_OK(alltoall(buffers.in, buffers.out, comm, gpu.stream()));
  EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("AlltoAll " + text_of(buffers.in.data()))));
}

/// As a program's background thread, that has never used the GPU itself.
void on_a_thread_without_context(const std::function<void()>& work) {
  std::thread([&] {
    CUcontext current = nullptr;
    EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, nullptr);
    work();
    EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, nullptr);
  }).join();
}

TEST(Native, NeedsNoRealOneThatWorks) {
  run_ranks(with_gpus(2, {{"FAKE_NCCL_FAILS", "ncclCommInitRankConfig"}}), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    expect_native(context, gpu, comm);
  });
}

TEST(Native, GpuMemoryIsKnownOnThreadsWithoutAContextToo) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const Buffers buffers(gpu, context);
    asked_of_real();
    const auto sum = [&] {
      NCCL_OK(
          ncclAllReduce(buffers.in.data(), buffers.out.data(), 2, ncclInt32, ncclSum, comm, gpu.stream()));
    };
    // The other rank's thread has one.
    if (context.rank == 0)
      on_a_thread_without_context(sum);
    else
      sum();
    EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("AllReduce " + text_of(buffers.in.data()))));
    const std::vector<int> ordinary = sent_by(context);
    std::vector<int> received(2);
    on_a_thread_without_context(
        [&] { NCCL_OK(ncclAlltoAll(ordinary.data(), received.data(), 1, ncclInt32, comm, nullptr)); });
    EXPECT_EQ(received, expected_at(context));
    gpu.wait();  // for the real library, which copies in the stream
  });
}

TEST(Native, MemoryOfTheRealLibraryIsFreedOnThreadsWithoutAContextToo) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const GpuArray<int> memory(gpu, 4);
    asked_of_real();
    on_a_thread_without_context([&] { NCCL_OK(ncclMemFree(memory.data())); });
    EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("MemFree " + text_of(memory.data()))));
  });
}

TEST(Native, AlltoAllKeepsItsPlaceBetweenPassedOnCallsOfTheStream) {
  run_ranks(with_gpus(3), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    Buffers buffers(gpu, context);
    const size_t count = static_cast<size_t>(context.ranks);
    const GpuArray<int> before(gpu, count), after(gpu, count);
    asked_of_real();
    for (int round = 0; round < 3; ++round) {
      std::vector<int> sent = sent_by(context), expected = expected_at(context);
      for (size_t i = 0; i < count; ++i) {
        sent[i] += 100000 * round;
        expected[i] += 100000 * round;
      }
      buffers.in.put(sent);
      NCCL_OK(ncclAllReduce(buffers.in.data(), before.data(), count, ncclInt32, ncclSum, comm, gpu.stream()));
      NCCL_OK(alltoall(before, buffers.out, comm, gpu.stream()));
      NCCL_OK(ncclAllReduce(buffers.out.data(), after.data(), count, ncclInt32, ncclSum, comm, gpu.stream()));
      EXPECT_EQ(after.get(), expected);
      EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("AllReduce "), StartsWith("AllReduce ")));
    }
  });
}

TEST(Native, GatherAndScatterAreNoAllToAll) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const Buffers buffers(gpu, context);
    asked_of_real();
    NCCL_OK(ncclGather(buffers.in.data(), buffers.out.data(), 1, ncclInt32, 0, comm, gpu.stream()));
    NCCL_OK(ncclScatter(buffers.in.data(), buffers.out.data(), 1, ncclInt32, 0, comm, gpu.stream()));
    EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("Gather "), StartsWith("Scatter ")));
  });
}

// What one rank cannot, or does not want, none does.
TEST(Native, OneRankDecidesForAll) {
  for (const bool wants : {true, false})
    run_ranks(with_gpus(2), [&](const RankContext& context) {
      const GpuRank gpu;
      if (context.rank == 1 && wants) fake_cuda_set("memory", 0);  // and cannot
      if (context.rank == 1 && !wants) setenv("EPCCL_NCCL_ALLTOALL", "real", 1);
      const Comm comm(context);
      fake_cuda_set("memory", 1L << 30);
      expect_passed_on(context, gpu, comm);
    });
}

// Compute cores would copy, but this double has no code of kernels: the host does, as for GPUs that do not reach each other.
TEST(Native, ForcedWhereCopyEnginesAreNotToBeUsed) {
  for (const char* wish : {"auto", "native"})
    run_ranks(with_gpus(2, {{"EPCCL_COPY_ENGINE", "never"}, {"EPCCL_NCCL_ALLTOALL", wish}}),
              [&](const RankContext& context) {
                const GpuRank gpu;
                fake_cuda_set("import_error", CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
                const Comm comm(context);
                if (std::string(wish) == "native")
                  expect_native(context, gpu, comm);
                else
                  expect_passed_on(context, gpu, comm);
              });
}

TEST(Native, EveryRankHasAGpuOfItsOwn) {
  run_ranks(with_gpus(2, {{"FAKE_CUDA_DEVICES", "2"}}), [](const RankContext& context) {
    const GpuRank gpu(context.rank);
    const Comm comm(context);
    expect_native(context, gpu, comm);
  });
}

TEST(Native, AWrongSettingIsNamed) {
  run_ranks(with_gpus(1, {{"EPCCL_NCCL_ALLTOALL", "sometimes"}}), [](const RankContext& context) {
    ncclComm_t comm = nullptr;
    NCCL_FAILS(ncclCommInitRank(&comm, 1, context.id, context.rank), ncclInvalidArgument,
               "EPCCL_NCCL_ALLTOALL=\"sometimes\"");
  });
}

// tests/rdma runs it over verbs, on a double that registers GPU memory.
TEST(Native, OnSeveralNodesWhereTheNetworkReachesGpuMemoryOrIfAskedFor) {
  const bool reaches = std::getenv("EPCCL_VERBS_LIB") != nullptr;
  for (const bool asked : {false, true}) {
    Job job = with_gpus(2, {{"EPCCL_NCCL_ALLTOALL", asked ? "native" : "auto"}});
    job.ranks_per_node = 1;
    run_ranks(job, [&](const RankContext& context) {
      const GpuRank gpu;
      const Comm comm(context);
      asked || reaches ? expect_native(context, gpu, comm) : expect_passed_on(context, gpu, comm);
    });
  }
}

TEST(Native, ACapturedCallIsPassedOn) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    expect_native(context, gpu, comm);
    const Buffers buffers(gpu, context);
    asked_of_real();
    EXPECT_EQ(cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    NCCL_OK(alltoall(buffers.in, buffers.out, comm, gpu.stream()));
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(gpu.stream(), &graph), CUDA_SUCCESS);
    EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("AlltoAll ")));
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    expect_native(context, gpu, comm);
  });
}

TEST(Native, PinnedMemoryIsPassedOn) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const Buffers buffers(gpu, context);
    void* pinned = nullptr;
    EXPECT_EQ(cuMemHostAlloc(&pinned, 64, 0), CUDA_SUCCESS);
    asked_of_real();
    NCCL_OK(ncclAlltoAll(pinned, buffers.out.data(), 1, ncclInt32, comm, gpu.stream()));
    EXPECT_THAT(asked_of_real(), ElementsAre(StartsWith("AlltoAll " + text_of(pinned))));
    EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
  });
}

// NULL and CUDA's names for its default streams are streams of the GPU here.
TEST(Native, TheDefaultStreamsAreTheGpuS) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    for (const uintptr_t name : {0, 1, 2}) {
      const Buffers buffers(gpu, context);
      auto* const stream = reinterpret_cast<cudaStream_t>(name);
      NCCL_OK(alltoall(buffers.in, buffers.out, comm, stream));
      EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
      EXPECT_EQ(buffers.out.get(), expected_at(context));
    }
    EXPECT_THAT(asked_of_real(), testing::Not(testing::Contains(HasSubstr("AlltoAll"))));
  });
}

TEST(Native, AGroupHoldsCallsOfBothLibrariesAndOfBothMemories) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const Buffers buffers(gpu, context);
    const GpuArray<int> other(gpu, std::vector<int>{context.rank}), copy(gpu, 1);
    const int peer = 1 - context.rank, mine = 70 + context.rank;
    int theirs = 0;
    asked_of_real();
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclBroadcast(other.data(), other.data(), 1, ncclInt32, 0, comm, gpu.stream()));
    NCCL_OK(alltoall(buffers.in, buffers.out, comm, gpu.stream()));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(&mine, 1, ncclInt32, peer, comm, nullptr));
    NCCL_OK(ncclRecv(&theirs, 1, ncclInt32, peer, comm, nullptr));
    NCCL_OK(ncclGroupEnd());
    // The real library waits for this stream when its group ends, and the stream for the all-to-all.
    NCCL_OK(ncclAllReduce(other.data(), copy.data(), 1, ncclInt32, ncclSum, comm, gpu.stream()));
    NCCL_OK(ncclGroupEnd());
    EXPECT_EQ(copy.get(), std::vector<int>{context.rank});
    EXPECT_EQ(theirs, 70 + peer);
    EXPECT_EQ(buffers.out.get(), expected_at(context));
    EXPECT_THAT(asked_of_real(),
                ElementsAre("GroupStart", StartsWith("Broadcast "), StartsWith("AllReduce "), "GroupEnd"));
  });
}

// One rank has CUDA memory, the other none: they must go the same way, or wait for each other.
TEST(Native, AnEmptyAllToAllIsDroppedOnEveryRank) {
  for (const char* library : {FAKE_NCCL, "/nowhere/libnccl.so.2"})
    run_ranks(with_gpus(2, {{"EPCCL_NCCL_LIB", library}}), [](const RankContext& context) {
      const GpuRank gpu;
      const Comm comm(context);
      const GpuArray<int> data(gpu, 1);
      void* const mine = context.rank == 0 ? data.data() : nullptr;
      NCCL_OK(ncclAlltoAll(mine, mine, 0, ncclInt32, comm, context.rank == 0 ? gpu.stream() : nullptr));
      gpu.wait();
      expect_native(context, gpu, comm);
    });
}

// Neither what is in front of the call in its stream, nor the call's own copies, are a driver call that is stuck.
TEST(Native, AStreamThatIsLateIsWaitedFor) {
  run_ranks(with_gpus(2, {{"EPCCL_CUDA_STUCK", "2"}}), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    expect_native(context, gpu, comm);
    const Buffers buffers(gpu, context);
    GpuArray<int> before(gpu, 1);
    const std::vector<int> value{1};
    if (context.rank == 0) fake_cuda_set("copy_pause", 4'000'000);
    before.put(value);
    NCCL_OK(alltoall(buffers.in, buffers.out, comm, gpu.stream()));
    gpu.wait();
    fake_cuda_set("copy_pause", 0);
    EXPECT_EQ(buffers.out.get(), expected_at(context));
    expect_native(context, gpu, comm);
  });
}

TEST(Native, CommunicatorsTakeNoGpuMemoryWhereEverythingIsPassedOn) {
  for (const char* who : {"auto", "real"})
    run_ranks(
        with_gpus(
            2, {{"EPCCL_NCCL_ALLTOALL", who}, {"EPCCL_NCCL_GROUPS", who}, {"EPCCL_NCCL_COLLECTIVES", who}}),
        [&](const RankContext& context) {
          const GpuRank gpu;
          const long before = fake_cuda_live("memory");
          const Comm comm(context);
          CUcontext current = nullptr;
          EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
          EXPECT_NE(current, nullptr);
          ncclComm_t part = nullptr;
          NCCL_OK(ncclCommSplit(comm, 0, context.rank, &part, nullptr));
          const long taken = fake_cuda_live("memory") - before;
          NCCL_OK(ncclCommDestroy(part));
          if (std::string(who) == "real")
            EXPECT_EQ(taken, 0);
          else
            EXPECT_GE(taken, 16 << 20);
          if (std::string(who) == "real") expect_passed_on(context, gpu, comm);
        });
}

TEST(Native, AGroupThatIsSpoiltHoldsNoStream) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const Buffers buffers(gpu, context);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(alltoall(buffers.in, buffers.out, comm, gpu.stream()));
    NCCL_FAILS(ncclAlltoAll(buffers.in.data(), nullptr, 1, ncclInt32, comm, gpu.stream()),
               ncclInvalidArgument, "recvbuff is NULL");
    NCCL_FAILS(ncclGroupEnd(), ncclInvalidArgument, "a call of this group was refused");
    EXPECT_EQ(buffers.out.get(), std::vector<int>(2, -1));
    expect_native(context, gpu, comm);
  });
}

TEST(Native, WithoutTheRealLibraryToo) {
  run_ranks(
      with_gpus(2, {{"EPCCL_NCCL_LIB", "/nowhere/libnccl.so.2"}, {"EPCCL_NCCL_COLLECTIVES", "real"}}),
      [](const RankContext& context) {
        const GpuRank gpu;
        const Comm comm(context);
        expect_native(context, gpu, comm);
        const Buffers buffers(gpu, context);
        NCCL_FAILS(
            ncclAllReduce(buffers.in.data(), buffers.out.data(), 2, ncclInt32, ncclSum, comm, gpu.stream()),
            ncclInvalidUsage, "ncclAllReduce: recvbuff " + text_of(buffers.out.data()) + " is CUDA memory");
        EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("/nowhere/libnccl.so.2"));
      });
}

TEST(Native, SplitsAndNonblockingCommunicators) {
  run_ranks(with_gpus(3), [](const RankContext& context) {
    const GpuRank gpu;
    ncclConfig_t config = initial_config();
    config.blocking = 0;
    ncclComm_t comm = nullptr, part = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 3, context.id, context.rank, &config), ncclInProgress);
    const auto settle = [](ncclComm_t one) {
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress) NCCL_OK(ncclCommGetAsyncError(one, &state));
      EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(one);
    };
    settle(comm);
    expect_native(context, gpu, comm);
    EXPECT_EQ(ncclCommSplit(comm, context.rank == 2 ? -1 : 0, context.rank, &part, nullptr), ncclInProgress);
    settle(comm);
    if (context.rank < 2) {
      settle(part);
      expect_native({context.rank, 2, context.id}, gpu, part);
    }
    for (ncclComm_t one : {part, comm}) {
      if (one == nullptr) continue;
      const ncclResult_t finalized = ncclCommFinalize(one);
      EXPECT_TRUE(finalized == ncclSuccess || finalized == ncclInProgress) << finalized;
      settle(one);
      NCCL_OK(ncclCommDestroy(one));
    }
  });
}

// Two ranks that share a GPU, or have one each.
TEST(Native, OneThreadDrivesTheCommunicatorsOfAnInitAll) {
  struct Case {
    std::array<int, 2> devices;
    bool reach_each_other;
    size_t passed_on;
  };
  for (const Case& one : {Case{{1, 1}, true, 0}, {{0, 1}, true, 0}, {{0, 1}, false, 2}})
    run_ranks(with_gpus(1, {{"FAKE_CUDA_DEVICES", "2"}, {"EPCCL_CUDA_FIRST_CALLS", "0"}}),
              [&](const RankContext& context) {
                fake_cuda_set("peer_access", one.reach_each_other ? 1 : 0);
                std::array<ncclComm_t, 2> comms{};
                NCCL_OK(ncclCommInitAll(comms.data(), 2, one.devices.data()));
                const GpuRank first_gpu(one.devices[0]);
                const Buffers first(first_gpu, {0, 2, context.id});
                const GpuRank second_gpu(one.devices[1]);
                const Buffers second(second_gpu, {1, 2, context.id});
                asked_of_real();
                NCCL_OK(alltoall(first.in, first.out, comms[0], first_gpu.stream()));
                NCCL_OK(alltoall(second.in, second.out, comms[1], second_gpu.stream()));
                EXPECT_EQ(asked_of_real().size(), one.passed_on);
                if (one.passed_on == 0) {
                  EXPECT_EQ(second.out.get(), expected_at({1, 2, context.id}));
                }
                for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
              });
}

}  // namespace
}  // namespace nccl_programs
