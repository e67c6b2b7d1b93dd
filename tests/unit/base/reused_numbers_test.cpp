// Numbers that are given out and given back for as long as a program runs.
#include "base/reused_numbers.hpp"

#include <gtest/gtest.h>

#include <set>

namespace epccl {
namespace {

TEST(ReusedNumbers, ComeAgainOnlyWhenAllOthersHaveBeenUsed) {
  ReusedNumbers numbers(5, 8);
  const auto none = [](int) { return false; };
  for (const int expected : {5, 6, 7, 5, 6}) EXPECT_EQ(numbers.take(none), expected);
}

TEST(ReusedNumbers, PassByThoseInUseUntilThereAreNone) {
  ReusedNumbers numbers(5, 8);
  std::set<int> used{6};
  const auto in_use = [&](int number) { return used.contains(number); };
  EXPECT_EQ(numbers.take(in_use), 5);
  EXPECT_EQ(numbers.take(in_use), 7);
  EXPECT_EQ(numbers.take(in_use), 5);
  used = {5, 6, 7};
  EXPECT_EQ(numbers.take(in_use), std::nullopt);
  used.erase(6);
  EXPECT_EQ(numbers.take(in_use), 6);
}

}  // namespace
}  // namespace epccl
