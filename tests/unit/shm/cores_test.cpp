// Ranks of a node that wait on one core find out about each other.
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

}  // namespace
}  // namespace epccl::transports
