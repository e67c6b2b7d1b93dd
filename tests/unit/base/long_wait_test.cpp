#include "base/long_wait.hpp"

#include <gtest/gtest.h>

namespace epccl {
namespace {

TEST(LongWait, IsWorthAWordAfterItsTimeAndWheneverItHasDoubled) {
  LongWait wait(100, 60);
  EXPECT_FALSE(wait.is_due(159));
  EXPECT_EQ(wait.next(), 160);
  EXPECT_TRUE(wait.is_due(161));
  EXPECT_EQ(wait.seconds(161), 61);
  EXPECT_FALSE(wait.is_due(221));
  EXPECT_TRUE(wait.is_due(222));
  EXPECT_FALSE(wait.is_due(343));
  EXPECT_TRUE(wait.is_due(344));
}

TEST(LongWait, OfZeroSecondsNeverIs) {
  LongWait wait(100, 0);
  EXPECT_FALSE(wait.is_due(1e9));
}

}  // namespace
}  // namespace epccl
