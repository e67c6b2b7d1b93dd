// Space that messages take in turn.
#include "algorithms/ep/ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

TEST(Ring, GivesSpaceOneAfterTheOther) {
  Ring ring(100, 50);
  std::vector<uint32_t> after;
  EXPECT_EQ(ring.take(20, after).offset, 100U);
  EXPECT_EQ(ring.take(30, after).offset, 120U);
  EXPECT_TRUE(after.empty());
}

TEST(Ring, WaitsForWhatHadTheSpace) {
  Ring ring(0, 50);
  std::vector<uint32_t> after;
  const auto first = ring.take(20, after), second = ring.take(20, after);
  ring.in_use_until(first, 7);
  ring.in_use_until(first, 8);
  ring.in_use_until(second, 9);
  EXPECT_EQ(ring.take(20, after).offset, 0U);  // 10 bytes at the end stay unused
  EXPECT_EQ(after, (std::vector<uint32_t>{7, 8}));
}

// A message that lies across two later ones is waited for by both.
TEST(Ring, ForgetsNothingThatStillReachesOn) {
  Ring ring(0, 50);
  std::vector<uint32_t> after;
  const auto first = ring.take(40, after);
  ring.in_use_until(first, 3);
  ring.take(10, after);
  ring.take(15, after);
  EXPECT_EQ(after, std::vector<uint32_t>{3});
  after.clear();
  ring.take(15, after);
  EXPECT_EQ(after, std::vector<uint32_t>{3});
}

TEST(Ring, NeverGivesBytesWithoutTheirLastUsers) {
  auto random = tests::seeded_generator("ring");
  constexpr uint64_t size = 60;
  for (int repeat = 0; repeat < 200; ++repeat) {
    Ring ring(0, size);
    std::vector<uint32_t> user_of(size, UINT32_MAX);  // of each byte
    for (uint32_t step = 0; step < 60; ++step) {
      std::vector<uint32_t> after;
      const uint64_t bytes = 1 + random() % (size / 2);
      const auto space = ring.take(bytes, after);
      ASSERT_LE(space.offset + bytes, size);
      for (uint64_t at = space.offset; at < space.offset + bytes; ++at) {
        if (user_of[at] != UINT32_MAX) {
          ASSERT_NE(std::ranges::find(after, user_of[at]), after.end());
        }
        user_of[at] = step;
      }
      ring.in_use_until(space, step);
    }
  }
}

}  // namespace
}  // namespace epccl::algorithms
