#include "layout.hpp"

#include <gtest/gtest.h>

namespace {

TEST(NcclLayout, SizesOffsetsAndValuesAreNcclH) {
  const Layout ours = our_layout(), theirs = their_layout();
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_EQ(ours[i].second, theirs[i].second) << ours[i].first;
}

}  // namespace
