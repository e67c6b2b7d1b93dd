#include "runtime/executor/copy_policy.hpp"

#include <gtest/gtest.h>

namespace epccl::runtime {
namespace {

TEST(CopyPolicy, WritesLargeOutputsPastTheCache) {
  const CopyPolicy policy{1000};
  EXPECT_FALSE(policy.streams(5000, 999));
  EXPECT_TRUE(policy.streams(0, 1000));
}

TEST(CopyPolicy, WritesThroughTheCacheWhatThatKeeps) {
  const CopyPolicy policy{1000, 3000};
  EXPECT_FALSE(policy.streams(2000, 1000));
  EXPECT_TRUE(policy.streams(2001, 1000)) << "what is read takes room, too";
  EXPECT_TRUE(policy.keeps(3000));
  EXPECT_FALSE(policy.keeps(3001));
}

}  // namespace
}  // namespace epccl::runtime
