#include <gtest/gtest.h>

#include "../cuda/gpu.hpp"
#include "fake_driver.hpp"
#include "runtime/streams/device_rooms.hpp"

namespace epccl::runtime {
namespace {

constexpr uint64_t KiB = 1 << 10, MiB = 1 << 20;

using device::test::take;

class BorrowedMemory : public ::testing::Test {
 protected:
  DeviceRooms::Borrowed borrow(uint64_t bytes) { return take(rooms_.borrow(bytes)); }
  /// Since the beginning.
  long allocated() const { return fake_cuda_live("pinned") - before_; }

 private:
  DeviceRooms rooms_{device::test::gpu()};
  const long before_ = fake_cuda_live("pinned");
};

TEST_F(BorrowedMemory, ThatIsLargeIsNotLentToWhoNeedsLittle) {
  borrow(64 * MiB);
  const auto little = borrow(4 * KiB);
  const auto again = borrow(64 * MiB);
  EXPECT_EQ(allocated(), static_cast<long>(64 * MiB + 4 * KiB));
}

TEST_F(BorrowedMemory, IsTheSmallestThatFits) {
  { const auto large = borrow(12 * MiB), small = borrow(8 * MiB); }
  const auto first = borrow(7 * MiB), second = borrow(12 * MiB);
  EXPECT_EQ(allocated(), static_cast<long>(20 * MiB));
}

TEST_F(BorrowedMemory, IsLittleMoreThanWhatWasAskedFor) {
  borrow(64 * MiB + 1);
  EXPECT_EQ(allocated(), static_cast<long>(72 * MiB));
}

TEST_F(BorrowedMemory, OfSizesThatGrowIsOneRoom) {
  for (uint64_t bytes = 8 * MiB; bytes <= 16 * MiB; bytes += MiB) borrow(bytes);
  EXPECT_EQ(allocated(), static_cast<long>(16 * MiB));
}

TEST_F(BorrowedMemory, IsThereAlsoWhereNothingIsAskedFor) {
  EXPECT_NE(borrow(0)->data(), nullptr);
}

}  // namespace
}  // namespace epccl::runtime
