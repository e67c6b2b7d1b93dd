// What ranks of a node let each other know of how they run.
#include "node.hpp"

namespace epccl::transports {
namespace {

TEST(Cores, WhoWaitsWhereAnotherOneWaitedMeetsIt) {
  Node node(3);
  EXPECT_FALSE(node[0].meets_on_core(0)) << "nobody else waited yet";
  EXPECT_FALSE(node[1].meets_on_core(1));
  EXPECT_TRUE(node[2].meets_on_core(1));
  EXPECT_TRUE(node[1].meets_on_core(1)) << "the other one, too, when it looks again";
}

TEST(Cores, WhoHasMovedIsMetNoLonger) {
  Node node(2);
  EXPECT_FALSE(node[0].meets_on_core(3));
  EXPECT_TRUE(node[1].meets_on_core(3));
  EXPECT_FALSE(node[1].meets_on_core(4));
  EXPECT_FALSE(node[0].meets_on_core(3));
}

TEST(Cores, ARankDoesNotMeetItself) {
  Node node(1);
  EXPECT_FALSE(node[0].meets_on_core(0));
  EXPECT_FALSE(node[0].meets_on_core(0));
}

// Ranks that share cores learn from each other what a call took.
TEST(LongestCall, IsThatOfTheRanksWhoseLastWasOfTheSameKind) {
  Node node(3);
  EXPECT_DOUBLE_EQ(node[0].longest_call(7, 0.25), 0.25) << "nobody else has told";
  EXPECT_DOUBLE_EQ(node[1].longest_call(7, 0.125), 0.25);
  EXPECT_DOUBLE_EQ(node[2].longest_call(8, 0.5), 0.5) << "of another kind";
  EXPECT_DOUBLE_EQ(node[1].longest_call(7, 0.125), 0.25);
  EXPECT_DOUBLE_EQ(node[0].longest_call(7, 0.0625), 0.125);
  const double longest = node[1].longest_call(8, 1e9);  // more than is told
  EXPECT_GT(longest, 1e5);
  EXPECT_DOUBLE_EQ(node[2].longest_call(8, 0), longest) << "the kind stays";
}

}  // namespace
}  // namespace epccl::transports
