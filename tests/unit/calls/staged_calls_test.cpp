#include <gtest/gtest.h>

#include "fake_driver.hpp"
#include "staged.hpp"

namespace epccl::runtime {
namespace {

using device::test::take;

class BorrowedMemory : public ::testing::Test {
 protected:
  StagedCalls::Borrowed borrow(uint64_t bytes) const { return take(calls_->borrow(bytes)); }
  /// Since the beginning.
  long allocated() const { return fake_cuda_live("pinned") - before_; }

 private:
  const std::unique_ptr<StagedCalls> calls_ = staged_calls();
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
