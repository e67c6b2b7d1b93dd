#include "base/fnv1a.hpp"

#include <gtest/gtest.h>

namespace epccl {
namespace {

TEST(Fnv1a64, PublishedVectors) {
  EXPECT_EQ(fnv1a64(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a64("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a64("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace epccl
