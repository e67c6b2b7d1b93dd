#include "runtime/executor/copy_policy.hpp"

#include <gtest/gtest.h>

namespace epccl::runtime {
namespace {

TEST(CopyPolicy, WritesLargeOutputsPastTheCache) {
  const CopyPolicy policy{.streaming_bytes = 1000};
  EXPECT_FALSE(policy.streams(5000, 999));
  EXPECT_TRUE(policy.streams(0, 1000));
}

TEST(CopyPolicy, WritesThroughTheCacheWhatThatKeeps) {
  const CopyPolicy policy{.streaming_bytes = 1000, .cached_bytes = 3000};
  EXPECT_FALSE(policy.streams(2000, 1000));
  EXPECT_TRUE(policy.streams(2001, 1000)) << "what is read takes room, too";
  EXPECT_TRUE(policy.keeps(3000));
  EXPECT_FALSE(policy.keeps(3001));
}

TEST(CopyPolicy, WritesOutputsOfAFixedSizePastTheCacheWhateverThatKeeps) {
  const CopyPolicy policy{.streaming_bytes = 1000, .keeps_outputs = false, .cached_bytes = 3000};
  EXPECT_TRUE(policy.streams(0, 1000));
  EXPECT_TRUE(policy.keeps(1000)) << "copies of inputs are another matter";
}

}  // namespace
}  // namespace epccl::runtime
