// Platforms whose driver has a function that then refuses. What they refused once is not tried again: a program of its own.
#include <gmock/gmock.h>

#include <array>

#include "fake_driver.hpp"
#include "gpu.hpp"

namespace epccl::device::test {
namespace {

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
