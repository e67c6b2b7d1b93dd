// What of a dispatch passes the host: counted by the double of the driver.
#include <gtest/gtest.h>

#include "device/cuda/kernels/launch.hpp"
#include "fake_driver.hpp"
#include "to_the_next.hpp"

namespace epccl::tests {
namespace {

// Ranks 1 and 2 send to another node, rank 0 to rank 1. Staged, all of them would bring all tokens to the host.
TEST(EpOnGpu, OnlyWhatCrossesNodesPassesTheHost) {
  if (device::cuda::bytes_of(device::cuda::Image::rows).empty()) GTEST_SKIP() << "built without CUDA kernels";
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

// The host learns where the others' rows are; that all are through it leaves to queues.
TEST(EpOnGpu, QueuesOfOneNodeWaitForEachOtherByThemselves) {
  if (device::cuda::bytes_of(device::cuda::Image::rows).empty()) GTEST_SKIP() << "built without CUDA kernels";
  run_ranks({{3}, {}, {}}, [](const RankContext& context) {
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
    // One of the user's stream for the call, and one for each other rank.
    EXPECT_EQ(fake_cuda_calls("cuStreamWaitValue64_v2"), calls * context.ranks);
    // That the user's stream has come; that this rank is through with others' rows; that all is over.
    EXPECT_EQ(fake_cuda_calls("cuStreamWriteValue64_v2"), calls * 3);
    EXPECT_EQ(layer.output.get(), layer.expected());
  });
}

// The double keeps all other calls out while one of a process waits for the GPU: that must be none behind a held stream.
TEST(EpOnGpu, ACallWaitsForTheGpuNowhereInTheDriver) {
  if (device::cuda::bytes_of(device::cuda::Image::rows).empty()) GTEST_SKIP() << "built without CUDA kernels";
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
  if (device::cuda::bytes_of(device::cuda::Image::rows).empty()) GTEST_SKIP() << "built without CUDA kernels";
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
