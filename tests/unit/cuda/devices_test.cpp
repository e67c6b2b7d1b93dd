#include <cuda.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "fake_driver.hpp"
#include "gpu.hpp"
#include "green_stream.hpp"

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

TEST(CudaDevices, TellWhereTheyAreOnTheBus) {
  const auto place = cuda_pci_place(1);
  ASSERT_TRUE(place.ok()) << place.status().message();
  EXPECT_EQ(place->domain, 0u);
  EXPECT_EQ(place->bus, 2) << "as the double says";
  EXPECT_EQ(place->device, 0);
  EXPECT_THAT(cuda_pci_place(2).status().message(), HasSubstr("there is no GPU 2: the CUDA driver knows 2"));
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

// The program has allocated, and asks on a thread that has used no GPU, before the library has.
TEST(CudaDevices, KnowMemoryOfTheProgramOnAThreadWithoutAContext) {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  void* pinned = nullptr;
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc(&memory, 100), CUDA_SUCCESS);
  ASSERT_EQ(cuMemHostAlloc(&pinned, 100, 0), CUDA_SUCCESS);
  std::thread([&] {
    int number = 0;
    EXPECT_FALSE(cuda_memory_at(&number));
    const auto found = cuda_memory_at(reinterpret_cast<const void*>(memory));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->ordinal, 1);
    EXPECT_TRUE(is_pinned_memory(pinned));
    EXPECT_FALSE(is_pinned_memory(&number));
  }).join();
  cuMemFreeHost(pinned);
  cuMemFree(memory);
  cuCtxPopCurrent(&context);
}

TEST(CudaDevices, AreNotOpenedToFindOutThatThereIsNoMemoryOfThem) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  const auto is_open = [] {
    unsigned flags = 0;
    int active = -1;
    EXPECT_EQ(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
    return active;
  };
  const int before = is_open(), number = 0;
  EXPECT_FALSE(cuda_memory_at(&number));
  EXPECT_EQ(is_open(), before);
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

TEST(CudaDevices, TakeAStreamOfAGreenContextOfTheGpu) {
  gpu(0);
  const GreenStream stream;
  EXPECT_OK(gpu(0).borrow_stream(stream.get()).status());
  EXPECT_THAT(gpu(1).borrow_stream(stream.get()).status().message(), HasSubstr("(another GPU?)"));
}

// In a process of its own, whose driver nobody has initialised: what that asks for.
void expect_connections(const char* mps_pipe, const char* expected) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
        unsetenv("CUDA_MPS_PIPE_DIRECTORY");
        if (mps_pipe != nullptr) setenv("CUDA_MPS_PIPE_DIRECTORY", mps_pipe, 1);
        static_cast<void>(cuda_device_count());
        const char* asked_for = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
        std::fprintf(stderr, "asks for %s", asked_for != nullptr ? asked_for : "none");
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), std::string("asks for ") + expected);
}

TEST(CudaDevices, AreAskedForManyConnections) {
  if (access("/tmp/nvidia-mps/control", F_OK) == 0) GTEST_SKIP() << "MPS serves this machine";
  expect_connections(nullptr, "32");
}

TEST(CudaDevices, AreAskedForNoConnectionsOfAServerOfMpsThatOthersShare) {
  expect_connections("/tmp/some-mps/pipe", "none");
}

}  // namespace
}  // namespace epccl::device::test
