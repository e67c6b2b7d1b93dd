// What graphs leave behind, which only the double of the driver shows.
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "fake_driver.hpp"
#include "freeing.hpp"
#include "gate.hpp"
#include "graph_rank.hpp"

namespace epccl::tests {
namespace {

/// With which the graph itself makes an alltoall, and the host.
class CudaGraphEnds : public CudaGraphs, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(CopyEngines, CudaGraphEnds, ::testing::Values("auto", "never"),
                         [](const auto& it) { return it.param; });

TEST_P(CudaGraphEnds, LeaveNothingBehindWhateverEndsFirst) {
  run_gpu_ranks(RanksAre::processes, 2, {{"EPCCL_COPY_ENGINE", GetParam()}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm parent(context);
    Exchanged exchanged(context, gpu, 64);
    const auto capture_and_run = [&](epcclComm_t comm) {
      auto graph =
          std::make_unique<Graph>(gpu, [&] { expect_captured(exchanged.call(comm, gpu.as_epccl())); });
      exchanged.fill(1);
      graph->launch();
      exchanged.expect(1);
      return graph;
    };
    const auto count = [](const char* what) { return fake_cuda_live(what); };
    {
      const Twin comm(parent);
      const long allocations = count("allocations");
      capture_and_run(comm);
      EXPECT_GT(count("allocations"), allocations);
    }
    const long allocations = count("allocations"), streams = count("streams"), imports = count("imports");
    for (int i = 0; i < 3; ++i) {
      std::unique_ptr<Graph> kept;
      {
        const Twin comm(parent);
        for (int each = 0; each < 5; ++each) capture_and_run(comm);
        kept = capture_and_run(comm);
        EXPECT_EQ(count("graphs"), 1) << "the executable one";
      }
      const long held = count("allocations");
      EXPECT_GT(held, allocations) << "the graph's";
      kept.reset();
      EXPECT_EQ(count("allocations"), held) << "nothing of CUDA is called where a graph ends";
    }
    {
      const Twin comm(parent);
      capture_and_run(comm);
    }
    EXPECT_EQ(count("graphs"), 0);
    EXPECT_EQ(count("allocations"), allocations) << "what graphs had kept ended with the next communicator";
    EXPECT_EQ(count("streams"), streams);
    EXPECT_EQ(count("imports"), imports);
  });
}

// As a program that captures anew for each shape of its buffers.
TEST_F(CudaGraphs, LeaveNothingBehindWhereOneCommunicatorCapturesAgainAndAgain) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const auto round = [&] {
      Exchanged exchanged(context, gpu, 64);
      const Graph graph(gpu, [&] { expect_captured(exchanged.call(comm, gpu.as_epccl())); });
      exchanged.fill(1);
      graph.launch();
      exchanged.expect(1);
      context.meet();  // the other reads this buffer
    };
    const auto live = [] {
      return std::array{fake_cuda_live("imports"), fake_cuda_live("memory"), fake_cuda_live("pinned")};
    };
    for (int warm_up = 0; warm_up < 2; ++warm_up) round();
    // A thread ends what is imported, after it was heard of.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const auto before = live();
    for (int i = 0; i < 5; ++i) round();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (live() != before && std::chrono::steady_clock::now() < end) usleep(1000);
    EXPECT_EQ(live(), before);
  });
}

// Nobody writes into what another process has at that address.
TEST_F(CudaGraphs, AreAnErrorOfAllRanksWhereOneCannotShareItsMemory) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    GpuRank gpu;
    Comm comm(context);
    const Exchanged exchanged(context, gpu, 64);
    if (context.rank == 1) fake_cuda_set("export_error", CUDA_ERROR_OPERATING_SYSTEM);
    {
      const Capture capture(gpu, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
      EXPECT_NE(exchanged.call(comm, gpu.as_epccl()), epcclSuccess);
      EXPECT_THAT(
          epcclGetLastError(comm),
          ::testing::HasSubstr("memory of local rank 1 on a GPU cannot be mapped by other processes"));
    }
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
  });
}

// A thread is in the driver and waits for the GPU, whose graph waits for a call of the host; and that needs the driver.
TEST_F(CudaGraphs, AreLetGoWhenAThreadKeepsTheirCallOutOfTheDriver) {
  const std::vector<std::pair<std::string, std::string>> environment{{"EPCCL_COPY_ENGINE", "never"},
                                                                     {"FAKE_CUDA_CONTEXT_LOCK", "1"}};
  run_gpu_ranks(RanksAre::processes, 1, environment, [](const RankContext& context) {
    const GpuRank gpu;
    Comm comm(context);
    ASSERT_EQ(epcclCommSetTimeout(comm, 0.3), epcclSuccess);
    const Exchanged exchanged(context, gpu, 10);
    const Gate gate;
    const Graph graph(gpu, [&] { expect_captured(exchanged.call(comm, gpu.as_epccl())); });
    gate.close(gpu);
    graph.launch();
    {
      const Freeing other_thread;
      gate.open();
    }
    gpu.wait();
    EXPECT_EQ(wait_for_failure(comm), epcclRemoteError);
    EXPECT_THAT(epcclGetLastError(comm),
                ::testing::HasSubstr("a stream of the GPU waits for a call whose thread has been in cu"));
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
  });
}

// The second communicator has no memory for what captured calls need: the first one's part of the group must not be there alone.
TEST_F(CudaGraphs, HoldNothingOfAGroupOfWhichACallCannotBeCaptured) {
  run_gpu_ranks(RanksAre::processes, 2, {}, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    const Twin twin(comm);
    const Exchanged exchanged(context, gpu, 10);
    const Graph prepares(gpu, [&] { expect_captured(exchanged.call(comm, gpu.as_epccl())); });
    context.meet();  // the other one has mapped what the call moves
    const GpuArray<int> in(gpu, 10), out(gpu, 10);
    const int peer = 1 - context.rank;
    Capture capture(gpu, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    fake_cuda_set("memory", fake_cuda_live("memory"));
    fake_cuda_forget_calls();
    EXPECT_EQ(epcclGroupStart(), epcclSuccess);
    for (epcclComm_t each : {epcclComm_t(comm), epcclComm_t(twin)}) {
      EXPECT_EQ(epcclSend(in.data(), 10, epcclInt32, peer, each, gpu.as_epccl()), epcclSuccess);
      EXPECT_EQ(epcclRecv(out.data(), 10, epcclInt32, peer, each, gpu.as_epccl()), epcclSuccess);
    }
    EXPECT_EQ(epcclGroupEnd(), epcclUnhandledDeviceError) << epcclGetLastError(nullptr);
    EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 0);
  });
}

// To free waits for the GPU inside the driver, which would not let in the rank for which the other one's replay waits.
TEST_F(CudaGraphs, OfRanksThatAreThreadsAreNotKeptApartByMemoryThatIsFreed) {
  const std::vector<std::pair<std::string, std::string>> environment{
      {"EPCCL_TIMEOUT", "30"}, {"EPCCL_DEVICE", "cuda"}, {"FAKE_CUDA_CONTEXT_LOCK", "1"}};
  run_gpu_ranks(RanksAre::threads, 2, environment, [](const RankContext& context) {
    const GpuRank gpu;
    const Comm comm(context);
    Exchanged exchanged(context, gpu, 10);
    void* memory = nullptr;
    ASSERT_EQ(epcclMemAlloc(&memory, 4096), epcclSuccess);
    const Graph graph(gpu, [&] { expect_captured(exchanged.call(comm, gpu.as_epccl())); });
    exchanged.fill(0);
    gpu.wait();
    ranks_of_this_process->arrive_and_wait();
    const long allocations = fake_cuda_live("allocations");
    if (context.rank == 0) {
      const long begun = fake_cuda_calls("kernels begun");
      graph.launch();
      while (fake_cuda_calls("kernels begun") == begun) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::seconds(2));  // the kernel says so first of all
      EXPECT_EQ(epcclMemFree(memory), epcclSuccess);
      EXPECT_EQ(fake_cuda_live("allocations"), allocations) << "put off";
    }
    ranks_of_this_process->arrive_and_wait();
    if (context.rank == 1) graph.launch();
    exchanged.expect(0);
    epcclResult_t state = epcclSuccess;
    EXPECT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
    EXPECT_EQ(state, epcclSuccess) << epcclGetLastError(comm);
    while (fake_cuda_live("allocations") == allocations) std::this_thread::yield();
    ranks_of_this_process->arrive_and_wait();
    if (context.rank == 1) {
      EXPECT_EQ(epcclMemFree(memory), epcclSuccess);
    }
  });
}

}  // namespace
}  // namespace epccl::tests
