// Copies to memory that other cores read: the right bytes either way, and which way from what copies took.
#include "device/host/shared_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace epccl::device {
namespace {

constexpr size_t bytes = 64 << 10;

void takes(SharedCopy& copy, double bytes_per_second, int times) {
  for (int i = 0; i < times; ++i) copy.took(bytes, static_cast<double>(bytes) / bytes_per_second);
}

TEST(SharedCopy, GoesThroughTheCacheUntilThatIsSlow) {
  SharedCopy copy;
  EXPECT_FALSE(copy.past_cache());
  takes(copy, 20e9, 100);
  EXPECT_FALSE(copy.past_cache());
  takes(copy, 2e9, 100);
  EXPECT_TRUE(copy.past_cache());
  takes(copy, 20e9, 100);
  EXPECT_FALSE(copy.past_cache());
}

// Every other reader is on this core.
TEST(SharedCopy, GoesPastTheCacheWhereHalfOfTheCopiesAreSlow) {
  SharedCopy copy;
  for (int i = 0; i < 50; ++i) {
    takes(copy, 40e9, 1);
    takes(copy, 2e9, 1);
  }
  EXPECT_TRUE(copy.past_cache());
  takes(copy, 40e9, 1);
  EXPECT_TRUE(copy.past_cache());
}

// A thread that lost its core, and one slow copy, say nothing about the memory.
TEST(SharedCopy, IsNotMisledByOneSlowCopy) {
  SharedCopy copy;
  takes(copy, 20e9, 100);
  takes(copy, 2e9, 1);
  takes(copy, 1e6, 100);
  EXPECT_FALSE(copy.past_cache());
}

TEST(SharedCopy, CopiesEveryByteEitherWay) {
  for (const double rate : {20e9, 2e9}) {
    SharedCopy copy;
    takes(copy, rate, 100);
    for (const size_t size :
         {size_t{1}, SharedCopy::least_past_cache, SharedCopy::least_past_cache + 77, bytes})
      for (const size_t shift : {0, 1, 40}) {
        std::vector<uint8_t> from(size + shift), to(size + shift + 1, 0xEE);
        for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 251);
        for (int again = 0; again < 20; ++again) copy.copy(to.data() + shift, from.data() + shift, size);
        EXPECT_TRUE(std::equal(from.begin() + static_cast<long>(shift), from.end(),
                               to.begin() + static_cast<long>(shift)));
        EXPECT_EQ(to.back(), 0xEE);
      }
  }
}

}  // namespace
}  // namespace epccl::device
