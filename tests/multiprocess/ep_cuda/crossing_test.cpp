// What of a dispatch passes the host: counted by the double of the driver.
#include <gtest/gtest.h>

#include "../api_cuda/graph_rank.hpp"
#include "device/kernels/launch.hpp"
#include "fake_driver.hpp"
#include "static_handle.hpp"
#include "to_the_next.hpp"

namespace epccl::tests {
namespace {

// Ranks 1 and 2 send to another node, rank 0 to rank 1. Staged, all of them would bring all tokens to the host.
TEST(EpOnGpu, OnlyWhatCrossesNodesPassesTheHost) {
  if (device::kernels::bytes_of(device::kernels::Image::rows).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  run_ranks({{2, 1}, {}, {}}, [](const RankContext& context) {
    const Comm comm(context);  // which does not know the GPU, so that `never` is by way of the host
    GpuRank gpu;
    ToTheNext layer(context, comm, gpu);
    gpu.wait();
    constexpr long all = ToTheNext::tokens * ToTheNext::hidden * sizeof(float);
    for (const auto& [engine, expected] : {std::pair("auto", context.rank == 0 ? 0 : all), {"never", all}}) {
      SCOPED_TRACE(engine);
      ASSERT_EQ(epcclCommSetCopyEngine(comm, engine), epcclSuccess);
      fake_cuda_forget_calls();
      ASSERT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclSuccess)
          << epcclGetLastError(nullptr);
      gpu.wait();
      EXPECT_EQ(fake_cuda_calls("bytes to the host"), expected);
    }
    EXPECT_EQ(layer.output.get(), layer.expected());
  });
}

// Kernels have made them there. All tokens go to the other node, and their sums come back.
TEST(EpOnGpu, ListsOfStaticModeDoNotPassTheHost) {
  if (device::kernels::bytes_of(device::kernels::Image::layout).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  run_ranks({{1, 1}, {}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    Problem problem;
    problem.layout = EPCCL_EP_LAYOUT_RANK_MAJOR;
    problem.experts = 2;
    problem.max_tokens = 4;
    problem.hidden = 8;
    problem.owner = {0, 1};
    StaticHandle handle(context, comm, gpu, problem);
    const GpuArray<int64_t> table(gpu, std::vector<int64_t>(4, 1 - context.rank));
    const GpuArray<float> tokens(gpu, 4 * 8), rows(gpu, 8 * 8), sums(gpu, 4 * 8);
    constexpr long message = 4 * 8 * sizeof(float);
    Tensor in(epcclFloat32, tokens.data(), {4, 8}), out(epcclFloat32, rows.data(), {8, 8}),
        back(epcclFloat32, sums.data(), {4, 8});
    for (int routing = 0; routing < 2; ++routing) {
      ASSERT_EQ(handle.update(table, 4, 1), epcclSuccess) << epcclGetLastError(nullptr);
      ASSERT_EQ(epcclEpComplete(handle.handle()), epcclSuccess) << epcclGetLastError(nullptr);
      fake_cuda_forget_calls();
      ASSERT_EQ(dispatch_tokens(handle.handle(), in, out, false, gpu.as_epccl()), epcclSuccess);
      epcclEpCombineInputs_t given = EPCCL_EP_COMBINE_INPUTS_INIT;
      given.tokens = out;
      epcclEpCombineOutputs_t taken = EPCCL_EP_COMBINE_OUTPUTS_INIT;
      taken.tokens = back;
      ASSERT_EQ(epcclEpCombine(handle.handle(), &given, &taken, nullptr, gpu.as_epccl()), epcclSuccess);
      ASSERT_EQ(epcclEpComplete(handle.handle()), epcclSuccess) << epcclGetLastError(nullptr);
      EXPECT_EQ(fake_cuda_calls("bytes to the host"), 2 * message);
      EXPECT_EQ(fake_cuda_calls("bytes from the host"), 2 * message);
    }
  });
}

// The host learns where the others' rows are; that all are through it leaves to queues.
TEST(EpOnGpu, QueuesOfOneNodeWaitForEachOtherByThemselves) {
  if (device::kernels::bytes_of(device::kernels::Image::rows).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  run_ranks(
      {{3}, {{"EPCCL_CUDA_FIRST_CALLS", "0"}, {"EPCCL_CUDA_AHEAD", "1"}}, {}},
      [](const RankContext& context) {
        GpuRank gpu;
        const Comm comm(context);
        ToTheNext layer(context, comm, gpu);
        gpu.wait();
        fake_cuda_forget_calls();
        constexpr int calls = 5;
        for (int i = 0; i < calls; ++i)
          ASSERT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclSuccess)
              << epcclGetLastError(nullptr);
        gpu.wait();
        // The user's stream says that it has come, and waits for the call; the queue says that this rank is through with the others' rows.
        EXPECT_EQ(fake_cuda_calls("cuStreamWriteValue64_v2"), calls * 2);
        EXPECT_EQ(fake_cuda_calls("cuStreamWaitValue64_v2"), calls);
        // The queue waits for that, and says so; waits for the others; waits for the others again; says that all is over.
        EXPECT_EQ(fake_cuda_calls("cuStreamBatchMemOp_v2"), calls * 4);
        EXPECT_EQ(layer.output.get(), layer.expected());
      });
}

// On one GPU, by kernels, also where a collective was made before (and after) by other queues.
TEST(EpOnGpu, QueuesOfOneGpuWaitForEachOtherByKernels) {
  if (device::kernels::bytes_of(device::kernels::Image::rows).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  for (const RanksAre ranks_are : {RanksAre::threads, RanksAre::processes})
    run_gpu_ranks(
        ranks_are, 3, {{"FAKE_CUDA_MPS", "1"}, {"EPCCL_CUDA_FIRST_CALLS", "0"}},
        [](const RankContext& context) {
          GpuRank gpu;
          const Comm comm(context);
          ToTheNext layer(context, comm, gpu);
          const GpuArray<float> sum(gpu, std::vector<float>(100, 1));
          for (int round = 0; round < 3; ++round) {
            ASSERT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclSuccess)
                << epcclGetLastError(nullptr);
            EXPECT_EQ(layer.output.get(), layer.expected());
            ASSERT_EQ(
                epcclAllReduce(sum.data(), sum.data(), 100, epcclFloat32, epcclMax, comm, gpu.as_epccl()),
                epcclSuccess)
                << epcclGetLastError(nullptr);
            EXPECT_EQ(sum.get(), std::vector<float>(100, 1));
          }
          context.meet();
          EXPECT_GE(fake_cuda_calls("epccl_words"), 3);
        });
}

// The double keeps all other calls out while one of a process waits for the GPU: that must be none behind a held stream.
TEST(EpOnGpu, ACallWaitsForTheGpuNowhereInTheDriver) {
  if (device::kernels::bytes_of(device::kernels::Image::rows).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 1}})
    for (const char* use : {"auto", "never"})
      run_ranks(
          {nodes, {{"EPCCL_COPY_ENGINE", use}, {"FAKE_CUDA_CONTEXT_LOCK", "1"}}, {}},
          [](const RankContext& context) {
            GpuRank gpu;
            const Comm comm(context);
            ToTheNext layer(context, comm, gpu);
            ASSERT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclSuccess)
                << epcclGetLastError(nullptr);
            EXPECT_EQ(layer.output.get(), layer.expected());
          });
}

// Neither rows nor tables, nor what crosses nodes.
TEST(EpOnGpu, NeverLeavesCopyEnginesAloneWhereKernelsCanCopy) {
  if (device::kernels::bytes_of(device::kernels::Image::rows).empty())
    GTEST_SKIP() << "built without CUDA kernels";
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 1}})
    run_ranks({nodes, {{"EPCCL_COPY_ENGINE", "never"}}, {}}, [](const RankContext& context) {
      GpuRank gpu;
      const Comm comm(context);
      ToTheNext layer(context, comm, gpu);
      gpu.wait();
      fake_cuda_forget_calls();
      ASSERT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclSuccess)
          << epcclGetLastError(nullptr);
      gpu.wait();
      for (const char* way : {"copies inside", "copies to the host", "copies from the host"})
        EXPECT_EQ(fake_cuda_calls(way), 0) << way;
      EXPECT_GT(fake_cuda_calls("cuLaunchKernel"), 0);
      EXPECT_EQ(layer.output.get(), layer.expected());
    });
}

}  // namespace
}  // namespace epccl::tests
