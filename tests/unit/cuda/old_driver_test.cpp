// Drivers that lack functions: EPCCL_DRIVER_AGE says which double this program has.
#include <gmock/gmock.h>

#include <array>

#include "fake_driver.hpp"
#include "gpu.hpp"
#include "green_stream.hpp"

namespace epccl::device::test {
namespace {

using ::testing::HasSubstr;
const bool is_ancient = std::string(EPCCL_DRIVER_AGE) == "ancient";

TEST(CudaOldDriver, WithoutListsCopiesOneByOne) {
  EXPECT_THAT(gpu().description(), HasSubstr("copies one by one"));
  const auto from = numbers(300, 6);
  const GpuMemory there(300);
  std::array<CopyWork, 3> works;
  for (size_t i = 0; i < 3; ++i) works[i] = {there.data() + i * 100, from.data() + i * 100, 100};
  auto queue = take(gpu().make_queue(QueueKind::copy_engine));
  EXPECT_OK(queue->copy(works));
  EXPECT_OK(queue->synchronize());
  EXPECT_EQ(get(there.data(), 300), from);
}

TEST(CudaOldDriver, WithoutVirtualMemorySharesByCudaIpc) {
  const GpuMemory memory(300, MemoryKind::shareable);
  EXPECT_EQ(gpu().export_memory(memory.data(), 1)->form, is_ancient ? 1 : 0);
}

TEST(CudaOldDriver, WithoutDescriptorsLendsNothingThatItCannotFlush) {
  const GpuMemory memory(300);
  const auto lent = gpu().lend(memory.data(), 300);
  if (is_ancient) {
    EXPECT_THAT(lent.status().message(), HasSubstr("cannot flush"));
  } else {
    EXPECT_TRUE(lent.ok() && lent->descriptor) << lent.status().message();
  }
}

TEST(CudaOldDriver, WithoutAWayToTellRefusesStreamsOfGreenContexts) {
  gpu();
  const GreenStream stream;
  EXPECT_THAT(gpu().borrow_stream(stream.get()).status().message(),
              HasSubstr("a green context, for which the driver is too old"));
}

TEST(CudaOldDriver, WithoutSignalsSaysSo) {
  alignas(4096) static std::array<SignalWord, 512> words;
  const Status status = gpu().make_words_visible(words.data(), sizeof words);
  if (!is_ancient) {
    EXPECT_OK(status);
    gpu().hide_words(words.data());
    return;
  }
  EXPECT_THAT(status.message(), HasSubstr("cannot write and wait for 64-bit words on a stream"));
}

}  // namespace
}  // namespace epccl::device::test
