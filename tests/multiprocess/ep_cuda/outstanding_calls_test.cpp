// Calls that are issued before those before them are through, on the double of the driver.
#include <gtest/gtest.h>

#include "fake_driver.hpp"
#include "to_the_next.hpp"

namespace epccl::tests {
namespace {

// The second borrows memory while a stream waits for the first.
TEST(OutstandingEpCalls, AreIssuedInOneGoWhereToAllocateWaitsForTheGpu) {
  run_ranks(
      {{1}, {{"FAKE_CUDA_CONTEXT_LOCK", "1"}, {"EPCCL_COPY_ENGINE", "never"}}, {}},
      [](const RankContext& context) {
        const Comm comm(context);  // which does not know the GPU, so that `never` is the host
        GpuRank gpu;
        ToTheNext layer(context, comm, gpu);
        gpu.wait();
        fake_cuda_set("alone_allocations", 1);
        fake_cuda_set("copy_pause", 2'000);
        for (int i = 0; i < 2; ++i)
          EXPECT_EQ(layer.dispatch(layer.input.data(), layer.output.data(), gpu.as_epccl()), epcclSuccess)
              << epcclGetLastError(nullptr);
        gpu.wait();
        fake_cuda_set("alone_allocations", 0);
        fake_cuda_set("copy_pause", 0);
        EXPECT_EQ(layer.output.get(), layer.expected());
      });
}

}  // namespace
}  // namespace epccl::tests
