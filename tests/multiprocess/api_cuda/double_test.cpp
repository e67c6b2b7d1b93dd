// What only the double of the driver shows: two GPUs, and one that has little memory.
#include <gmock/gmock.h>

#include "../api/ranks.hpp"
#include "fake_driver.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {
namespace {

using ::testing::HasSubstr;

TEST(CudaMemoryArguments, MemoryOfAnotherGpuIsRefused) {
  run_ranks({{1}, {{"FAKE_CUDA_DEVICES", "2"}}, {}}, [](const RankContext& context) {
    GpuRank gpu(0);
    const Comm comm(context);
    const GpuArray<float> mine(gpu, 10), mine_too(gpu, 10);
    EXPECT_EQ(epcclAlltoall(mine.data(), mine_too.data(), 10, epcclFloat32, comm, gpu.as_epccl()),
              epcclSuccess);
    gpu.wait();
    GpuRank other(1);
    const GpuArray<float> theirs(other, 10), theirs_too(other, 10);
    EXPECT_EQ(epcclAlltoall(mine.data(), theirs.data(), 10, epcclFloat32, comm, gpu.as_epccl()),
              epcclInvalidArgument);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("is memory of GPU 0, but recvbuff"));
    EXPECT_EQ(epcclAlltoall(theirs.data(), theirs_too.data(), 10, epcclFloat32, comm, other.as_epccl()),
              epcclInvalidUsage);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("the communicator uses GPU 0, so not memory of GPU 1"));
    EXPECT_EQ(epcclAlltoall(mine.data(), mine_too.data(), 10, epcclFloat32, comm, other.as_epccl()),
              epcclInvalidArgument);
    EXPECT_THAT(epcclGetLastError(nullptr), HasSubstr("is of another context"));
  });
}

TEST(CudaMemoryArguments, OutOfMemoryNamesSizesAndLeavesTheCommunicatorUsable) {
  run_ranks({{1}, {{"EPCCL_DEVICE", "cuda"}}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    fake_cuda_set("memory", 64 << 20);
    void* memory = nullptr;
    EXPECT_EQ(epcclMemAlloc(&memory, 1 << 30), epcclUnhandledDeviceError);
    EXPECT_THAT(epcclGetLastError(nullptr),
                HasSubstr("allocating 1073741824 bytes where 67108864 of 67108864 are free"));
    const GpuArray<float> in(gpu, std::vector<float>{1}), out(gpu, 1);
    EXPECT_EQ(epcclAlltoall(in.data(), out.data(), 1, epcclFloat32, comm, gpu.as_epccl()), epcclSuccess);
    EXPECT_EQ(out.get(), std::vector<float>{1});
  });
}

}  // namespace
}  // namespace epccl::tests
