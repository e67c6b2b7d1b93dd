// Platforms whose driver has a function that then refuses. What they refused once is not tried again: a program of its own.
#include <gmock/gmock.h>

#include <array>

#include "device/cuda/kernel_queue.hpp"
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
  EXPECT_FALSE(cuda::has_kernels(*queue));
  if (cuda::bytes_of(cuda::Image::reduce).empty()) return;  // built without nvcc: there is nothing to refuse
  std::byte place{};
  const ReduceSource source{&place, false};
  const Status sum = queue->reduce({{}, {&source, 1}, true, &place, 1, {}});
  EXPECT_THAT(sum.message(), AllOf(HasSubstr("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), HasSubstr("which CUDA "),
                                   HasSubstr(" compiled for sm_80, sm_90, sm_100"),
                                   HasSubstr("on sm_90 with a driver of CUDA 13.0")));
}

TEST(CudaRefusingDriver, MemoryIsSharedByCudaIpc) {
  fake_cuda_set("create_error", 801);
  for (int round = 0; round < 2; ++round) {
    const GpuMemory memory(1000, MemoryKind::shareable);
    EXPECT_EQ(gpu().export_memory(memory.data(), 1)->form, 1);
  }
  EXPECT_EQ(fake_cuda_calls("cuMemCreate"), 1);
}

}  // namespace
}  // namespace epccl::device::test
