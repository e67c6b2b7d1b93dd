#include "algorithms/alltoall/send_window.hpp"

#include <gtest/gtest.h>

namespace epccl::algorithms {
namespace {

constexpr uint64_t kib = 1 << 10;
constexpr uint32_t none = plan::Builder::none;

TEST(SendWindow, HoldsBackWhatDoesNotFit) {
  SendWindow window(512 * kib, 10000 * kib);
  for (uint32_t send = 0; send < 4; ++send) {
    EXPECT_EQ(window.wait_for(128 * kib), none) << send;
    window.add(send, 128 * kib);
  }
  EXPECT_EQ(window.wait_for(128 * kib), 0u);
  window.add(4, 128 * kib);
  EXPECT_EQ(window.wait_for(256 * kib), 2u) << "waits for the last of those that have to leave";
}

TEST(SendWindow, LetsOneSendGoHoweverLarge) {
  SendWindow window(512 * kib, 10000 * kib);
  EXPECT_EQ(window.wait_for(5000 * kib), none);
  window.add(0, 5000 * kib);
  EXPECT_EQ(window.wait_for(1), 0u);
}

TEST(SendWindow, IsHalfOfAShortExchange) {
  SendWindow window(512 * kib, 384 * kib);
  window.add(0, 128 * kib);
  EXPECT_EQ(window.wait_for(128 * kib), 0u);
}

TEST(SendWindow, HoldsBackNothingSmall) {
  SendWindow window(512 * kib, 128 * kib);
  window.add(0, 64 * kib);
  EXPECT_EQ(window.wait_for(64 * kib), none);
}

}  // namespace
}  // namespace epccl::algorithms
