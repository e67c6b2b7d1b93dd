// What a rank that gives up says in its node's memory, and whom it waits for.
#include <string>

#include "node.hpp"

namespace epccl::transports {
namespace {

TEST(GivingUp, TellsItsNodeTheFirstReason) {
  Node node(3);
  EXPECT_EQ(node[0].why_gave_up().message(), "a rank of this node gave up") << "no reason is known";
  node[1].say_why("the first");
  node[2].say_why("its echo");
  for (int local = 0; local < node.ranks(); ++local) {
    EXPECT_EQ(node[local].why_gave_up().message(), "the first");
    EXPECT_EQ(node[local].why_gave_up().code(), Code::remote_error);
  }
}

TEST(GivingUp, TellsWhetherItWasATimeout) {
  Node late(2), name(2);
  late[1].say_why("it waited", Reason::timeout);
  EXPECT_EQ(late[0].why_gave_up().reason(), Reason::timeout);
  name[1].say_why("timeout: a name");
  EXPECT_EQ(name[0].why_gave_up().reason(), Reason::none);
}

TEST(GivingUp, CutsALongReason) {
  Node node(2);
  const std::string reason(10'000, 'x');
  node[1].say_why(reason);
  const std::string told = node[0].why_gave_up().message();
  EXPECT_GE(told.size(), 500U);
  EXPECT_EQ(told, reason.substr(0, told.size()));
}

TEST(GivingUp, WaitsForNobodyWhereNobodyHasMadeACall) {
  Node node(2);
  EXPECT_EQ(node[0].peer_that_uses(0), -1);
  EXPECT_TRUE(node[1].begin_use(1));
  EXPECT_EQ(node[0].peer_that_uses(1), 1);
  node[1].end_use();
  EXPECT_EQ(node[0].peer_that_uses(0), -1);
  EXPECT_EQ(node[0].peer_that_uses(1), -1);
}

}  // namespace
}  // namespace epccl::transports
