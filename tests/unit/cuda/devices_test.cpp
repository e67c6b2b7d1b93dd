#include <cuda.h>
#include <gmock/gmock.h>

#include "fake_driver.hpp"
#include "gpu.hpp"

namespace epccl::device::test {
namespace {

using ::testing::HasSubstr;

TEST(CudaDevices, AreCountedAndDescribed) {
  EXPECT_EQ(*cuda_device_count(), 2);
  EXPECT_EQ(gpu(1).ordinal(), 1);
  EXPECT_EQ(gpu(1).kind(), DeviceKind::cuda);
  EXPECT_EQ(gpu(1).copy_engines(), 3);
  EXPECT_EQ(gpu(1).description(), "Double 1, 3 copy engines, CUDA 13.0, copies in lists");
  EXPECT_EQ(&gpu(1), &gpu(1));
  EXPECT_THAT(cuda_device(2).status().message(), HasSubstr("there is no GPU 2: the CUDA driver knows 2"));
  EXPECT_FALSE(cuda_device(-1).ok());
}

TEST(CudaDevices, LeaveTheCallersContextAlone) {
  EXPECT_FALSE(current_cuda_device());
  CUcontext context = nullptr, now = nullptr;
  gpu();
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(current_cuda_device(), 1);
  const GpuMemory memory(100);  // of GPU 0
  put(memory.data(), numbers(100, 1));
  ASSERT_EQ(cuCtxGetCurrent(&now), CUDA_SUCCESS);
  EXPECT_EQ(now, context);
  cuCtxPopCurrent(&context);
}

TEST(CudaDevices, RefuseAStreamOfAnotherGpu) {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  gpu(0);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_THAT(gpu(0).borrow_stream(stream).status().message(), HasSubstr("is of another context"));
  EXPECT_TRUE(gpu(1).borrow_stream(stream).ok());
  cuStreamDestroy(stream);
  cuCtxPopCurrent(&context);
}

}  // namespace
}  // namespace epccl::device::test
