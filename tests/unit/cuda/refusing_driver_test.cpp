// Platforms whose driver has a function that then refuses. What they refused once is not tried again: a program of its own.
#include <cuda.h>
#include <gmock/gmock.h>

#include <array>

#include "device/kernels/kernel_queue.hpp"
#include "fake_driver.hpp"
#include "gpu.hpp"

namespace epccl::device::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaRefusingDriver, ListsOfCopiesAreQueuedOneByOne) {
  const auto from = numbers(200, 7);
  const GpuMemory there(200);
  const std::array works{CopyWork{there.data(), from.data(), 100},
                         CopyWork{there.data() + 100, from.data() + 100, 100}};
  const auto queue = take(gpu().make_queue(QueueKind::copy_engine));
  fake_cuda_set("batch_error", 801);
  fake_cuda_forget_calls();
  for (int round = 0; round < 2; ++round) EXPECT_OK(queue->copy(works));
  EXPECT_OK(queue->synchronize());
  EXPECT_EQ(fake_cuda_calls("cuMemcpyBatchAsync_v2"), 1);
  EXPECT_EQ(fake_cuda_calls("cuMemcpyAsync"), 4);
  EXPECT_EQ(get(there.data(), 200), from);
  EXPECT_THAT(gpu().description(), HasSubstr("copies one by one"));
}

// As a driver of CUDA 12 does with what CUDA 13 has compiled.
TEST(CudaRefusingDriver, KernelsThatItDoesNotKnowAreNamedWithBothVersions) {
  fake_cuda_set("image_error", 222);
  const auto another = take(cuda_device(1));  // GPU 0 has been opened before
  fake_cuda_set("image_error", 0);
  const auto queue = take(another->make_queue(QueueKind::compute));
  EXPECT_FALSE(kernels::has_kernels(*queue));
  if (kernels::bytes_of(kernels::Image::reduce).empty())
    return;  // built without nvcc: there is nothing to refuse
  std::byte place{};
  const ReduceSource source{&place, false};
  const Status sum = queue->reduce({{}, {&source, 1}, true, &place, 1, {}});
  EXPECT_THAT(sum.message(), AllOf(HasSubstr("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), HasSubstr("which CUDA "),
                                   HasSubstr(" compiled for sm_80, sm_90, sm_100"),
                                   HasSubstr("on sm_90 with a driver of CUDA 13.0")));
}

// A test of its own process (gtest_discover_tests), as all of these: what was refused once is not asked for again.
TEST(CudaRefusingDriver, MemoryThatIsNotForNetworkCardsIsSharedByDescriptorAllTheSame) {
  gpu();
  for (const long refusal : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_SUPPORTED}) {
    fake_cuda_set("rdma_create_error", refusal);
    fake_cuda_forget_calls();
    for (int round = 0; round < 2; ++round) {
      const GpuMemory memory(1000, MemoryKind::shareable);
      const bool ran_out = refusal == CUDA_ERROR_OUT_OF_MEMORY;  // says nothing about cards
      EXPECT_EQ(gpu().export_memory(memory.data(), 1)->form, ran_out ? 1 : 0);
      EXPECT_EQ(fake_cuda_calls("cuMemCreate"), ran_out ? round + 1 : round + 2);
    }
  }
}

// A driver that loads kernels when they are first asked for takes their module, and then has no code for the GPU.
TEST(CudaRefusingDriver, AKernelThatItCannotLoadIsNamedWithTheVersionsAndCopiesWork) {
  if (kernels::bytes_of(kernels::Image::reduce).empty()) GTEST_SKIP() << "built without nvcc";
  setenv("FAKE_CUDA_VERSION", "12080", 1);
  fake_cuda_set("function_error", CUDA_ERROR_NO_BINARY_FOR_GPU);
  Device& device = gpu(1);
  fake_cuda_set("function_error", 0);
  EXPECT_FALSE(device.can_copy_by_cores());
  const auto queue = take(device.make_queue(QueueKind::compute));
  std::byte place{};
  const ReduceSource source{&place, false};
  const std::string why = queue->reduce({{}, {&source, 1}, true, &place, 1, {}}).message();
  EXPECT_THAT(why, AllOf(HasSubstr("CUDA_ERROR_NO_BINARY_FOR_GPU"), HasSubstr("which CUDA "),
                         HasSubstr("on sm_90 with a driver of CUDA 12.8")));
  EXPECT_THAT(why, HasSubstr(CUDA_VERSION >= 13000 ? "they need one of CUDA 13.0 or newer" : "CUDA"));
  const GpuMemory memory(1000, MemoryKind::shareable, device);
  const auto bytes = numbers(1000, 3);
  copy_now(memory.data(), bytes.data(), bytes.size(), device);
  std::vector<std::byte> back(bytes.size());
  copy_now(back.data(), memory.data(), back.size(), device);
  EXPECT_EQ(back, bytes);
}

// Memory that can be made and mapped, but not shared: for each half a GPU that has made none yet.
TEST(CudaRefusingDriver, MemoryWhoseDescriptorIsRefusedIsSharedByCudaIpc) {
  int ordinal = 0;
  for (const char* half : {"descriptor_export_error", "descriptor_import_error"}) {
    Device& device = gpu(ordinal++);
    fake_cuda_set(half, CUDA_ERROR_NOT_PERMITTED);
    fake_cuda_forget_calls();
    for (int round = 0; round < 2; ++round) {
      const GpuMemory memory(1000, MemoryKind::shareable, device);
      const auto handle = device.export_memory(memory.data(), 1);
      ASSERT_TRUE(handle.ok()) << half << ": " << handle.status().message();
      EXPECT_EQ(handle->form, 1) << half;
    }
    EXPECT_EQ(fake_cuda_calls("cuMemCreate"), 1) << half << ": tried once";
    fake_cuda_set(half, 0);
  }
  EXPECT_EQ(fake_cuda_live("allocations"), 0);
}

// What was made to be shared by descriptor does not stay in its way.
TEST(CudaRefusingDriver, MemoryWhoseDescriptorIsRefusedMakesRoomForItself) {
  Device& device = gpu();
  fake_cuda_set("memory", 8 << 20);
  fake_cuda_set("descriptor_import_error", CUDA_ERROR_NOT_PERMITTED);
  const GpuMemory memory(6 << 20, MemoryKind::shareable);
  const auto handle = device.export_memory(memory.data(), 1);
  ASSERT_TRUE(handle.ok()) << handle.status().message();
  EXPECT_EQ(handle->form, 1);
}

TEST(CudaRefusingDriver, MemoryIsSharedByCudaIpc) {
  fake_cuda_set("create_error", 801);
  for (int round = 0; round < 2; ++round) {
    const GpuMemory memory(1000, MemoryKind::shareable);
    EXPECT_EQ(gpu().export_memory(memory.data(), 1)->form, 1);
  }
  EXPECT_EQ(fake_cuda_calls("cuMemCreate"), 2) << "for network cards, and not";
}

}  // namespace
}  // namespace epccl::device::test
