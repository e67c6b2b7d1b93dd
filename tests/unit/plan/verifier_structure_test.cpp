// The verifier: form, messages, signals, deadlocks. One wrong plan for each way to be wrong.
#include <gtest/gtest.h>

#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

/// Rank 0 sends 8 bytes to rank 1 on another node; a test breaks it.
class OneMessage : public ::testing::Test {
 protected:
  Plan message(uint64_t sent, uint64_t received, uint32_t send_tag, uint32_t recv_tag) {
    SmallPlan plan({1, 1});
    plan[0].send(1, send_tag, plan[0].input(0), sent);
    plan[1].recv(0, recv_tag, plan[1].output(0), received);
    return plan.take();
  }
  const std::vector<Transfer> expected_{{0, 0, 1, 0, 8}};
};

TEST_F(OneMessage, IsAccepted) {
  EXPECT_TRUE(accepted(message(8, 8, 3, 3), expected_));
}

TEST_F(OneMessage, ReportCountsItsBytes) {
  VerifyReport report;
  ASSERT_TRUE(verify(message(8, 8, 3, 3), expected_, &report).ok());
  EXPECT_EQ(report.steps, 2u);
  EXPECT_EQ(report.depth, 2u);
  EXPECT_EQ(report.links.messages, 1u);
  EXPECT_EQ(report.links.network_bytes, 8u);
  EXPECT_EQ(report.links.between_nodes(0, 1), 8u);
  EXPECT_EQ(report.links.between_nodes(1, 0), 0u);
  EXPECT_EQ(report.links.rank_pairs, (std::vector<LinkBytes::RankPair>{{0, 1, 8, 1}}));
  EXPECT_EQ(report.links.messages_sent, (std::vector<uint64_t>{1, 0}));
  EXPECT_EQ(report.links.messages_received, (std::vector<uint64_t>{0, 1}));
}

TEST_F(OneMessage, InTwoPartsIsCountedTogether) {
  SmallPlan plan({1, 1});
  for (const uint64_t part : {0, 1}) {
    plan[0].send(1, static_cast<uint32_t>(part), plan[0].input(5 * part), 5 - 2 * part);
    plan[1].recv(0, static_cast<uint32_t>(part), plan[1].output(5 * part), 5 - 2 * part);
  }
  VerifyReport report;
  ASSERT_TRUE(verify(plan.take(), expected_, &report).ok());
  EXPECT_EQ(report.links.rank_pairs, (std::vector<LinkBytes::RankPair>{{0, 1, 8, 2}}));
}

TEST_F(OneMessage, OfNothingIsASignal) {
  EXPECT_TRUE(accepted(message(0, 0, 0, 0), {}));
}

TEST_F(OneMessage, TooShort) {
  EXPECT_TRUE(refused(
      message(6, 8, 3, 3), expected_,
      {"plan small: rank 1 step 0 (recv from=0 tag=3", "6 bytes where sent", "8 bytes where received"}));
}

TEST_F(OneMessage, TagsDiffer) {
  EXPECT_TRUE(refused(message(8, 8, 3, 4), expected_, {"rank 0 step 0", "message 0 -> 1 tag 3 has no recv"}));
}

TEST_F(OneMessage, SendMissing) {
  SmallPlan plan({1, 1});
  plan[1].recv(0, 3, plan[1].output(0), 8);
  EXPECT_TRUE(refused(plan.take(), expected_, {"rank 1 step 0", "message 0 -> 1 tag 3 has no send"}));
}

TEST_F(OneMessage, RecvMissing) {
  SmallPlan plan({1, 1});
  plan[0].send(1, 3, plan[0].input(0), 8);
  EXPECT_TRUE(refused(plan.take(), expected_, {"rank 0 step 0", "message 0 -> 1 tag 3 has no recv"}));
}

TEST_F(OneMessage, TagUsedAgain) {
  SmallPlan plan({1, 1});
  for (uint64_t part = 0; part < 2; ++part) {
    plan[0].send(1, 3, plan[0].input(4 * part), 4);
    plan[1].recv(0, 3, plan[1].output(4 * part), 4);
  }
  EXPECT_TRUE(
      refused(plan.take(), expected_, {"rank 0 step 1", "message 0 -> 1 tag 3 is used again: step 0"}));
}

// --- Form

/// A plan of one step on nodes {2, 1}, changed by `change`, must be refused with `part`.
::testing::AssertionResult malformed(Step step, const std::string& part) {
  Plan plan = SmallPlan({2, 1}).take();
  plan.ranks[0].steps.push_back(step);
  plan.ranks[0].scratch_bytes = 32;
  plan.ranks[1].scratch_bytes = 16;
  return refused(plan, {{0, 0, 0, 0, 16}, {1, 0, 1, 0, 16}, {2, 0, 2, 0, 16}},
                 {"plan small: rank 0 step 0 (", part});
}

Step copy_step(Location source, Location destination, uint64_t bytes) {
  Step step;
  step.source = source;
  step.destination = destination;
  step.bytes = bytes;
  return step;
}

Step peer_step(Kind kind, int peer, uint16_t slot = 0, uint32_t value = 1) {
  Step step;
  step.kind = kind;
  step.peer = peer;
  step.slot = slot;
  step.value = value;
  step.source = {0, Buffer::input, 0};
  step.destination = {0, Buffer::output, 0};
  step.bytes = 8;
  return step;
}

TEST(Form, CopiesStayWithinTheirNode) {
  EXPECT_TRUE(malformed(copy_step({2, Buffer::input, 0}, {0, Buffer::output, 0}, 8),
                        "reads the input of rank 2, which is on node 1, not on node 0"));
  EXPECT_TRUE(malformed(copy_step({0, Buffer::input, 0}, {2, Buffer::output, 0}, 8),
                        "writes the output of rank 2, which is on node 1, not on node 0"));
}

TEST(Form, NothingWritesAnInput) {
  EXPECT_TRUE(
      malformed(copy_step({0, Buffer::input, 0}, {1, Buffer::input, 0}, 8), "writes the input of rank 1"));
  Step recv = peer_step(Kind::recv, 2);
  recv.destination.buffer = Buffer::input;
  EXPECT_TRUE(malformed(recv, "writes the input of rank 0"));
}

TEST(Form, RegionsAreInRange) {
  EXPECT_TRUE(malformed(copy_step({0, Buffer::input, 9}, {0, Buffer::output, 0}, 8),
                        "reads bytes [9, 17) of the input of rank 0, which has 16 bytes"));
  EXPECT_TRUE(malformed(copy_step({0, Buffer::input, 0}, {1, Buffer::scratch, 16}, 8),
                        "writes bytes [16, 24) of the scratch of rank 1, which has 16 bytes"));
  EXPECT_TRUE(
      malformed(copy_step({0, Buffer::input, 0}, {0, Buffer::output, UINT64_MAX - 4}, 8), "beyond 2^64"));
  EXPECT_TRUE(malformed(copy_step({7, Buffer::input, 0}, {0, Buffer::output, 0}, 8),
                        "rank 7, but there are 3 ranks"));
  EXPECT_TRUE(malformed(copy_step({0, Buffer{5}, 0}, {0, Buffer::output, 0}, 8), "unknown buffer 5"));
}

TEST(Form, CopiesCopySomething) {
  EXPECT_TRUE(malformed(copy_step({0, Buffer::input, 0}, {0, Buffer::output, 0}, 0), "copies nothing"));
  Step no_rows = copy_step({0, Buffer::input, 0}, {0, Buffer::output, 0}, 8);
  no_rows.rows = 0;
  EXPECT_TRUE(malformed(no_rows, "copies nothing"));
}

TEST(Form, RowsDoNotOverlapInTheDestination) {
  Step step = copy_step({0, Buffer::input, 0}, {0, Buffer::output, 0}, 4);
  step.source_stride = 4;
  step.destination_stride = 3;
  for (const uint32_t rows : {2, 3}) {
    step.rows = rows;
    EXPECT_TRUE(malformed(step, "rows of 4 bytes, 3 bytes apart")) << rows << " rows";
  }
}

TEST(Form, MessagesLeaveTheNode) {
  EXPECT_TRUE(malformed(peer_step(Kind::send, 1), "message with rank 1, which is on the same node"));
  EXPECT_TRUE(malformed(peer_step(Kind::recv, 0), "message with rank 0, which is on the same node"));
  EXPECT_TRUE(malformed(peer_step(Kind::send, 3), "sends to rank 3, but there are 3 ranks"));
}

TEST(Form, SignalsStayWithinTheirNodeAndSlots) {
  EXPECT_TRUE(malformed(peer_step(Kind::wait, 2), "waits for rank 2, which is on another node"));
  EXPECT_TRUE(malformed(peer_step(Kind::wait, -1), "waits for rank -1, but there are 3 ranks"));
  EXPECT_TRUE(malformed(peer_step(Kind::wait, 1, max_slots),
                        "but there are " + std::to_string(max_slots) + " slots"));
  EXPECT_TRUE(malformed(peer_step(Kind::post, -1, max_slots),
                        "but there are " + std::to_string(max_slots) + " slots"));
  EXPECT_TRUE(malformed(peer_step(Kind::post, -1, 0, 0), "posts value 0"));
  EXPECT_TRUE(malformed(peer_step(Kind::wait, 1, 0, 0), "waits for value 0"));
}

TEST(Form, DependenciesAreEarlierSteps) {
  Plan plan = SmallPlan({1}).take();
  plan.ranks[0].steps.push_back(peer_step(Kind::post, -1));
  plan.ranks[0].steps[0].dependency_count = 1;
  EXPECT_TRUE(refused(plan, {}, {"rank 0 step 0", "has dependencies [0, 1), but the rank lists only 0"}));
  plan.ranks[0].dependencies = {0};
  EXPECT_TRUE(refused(plan, {}, {"rank 0 step 0", "depends on step 0, which is not an earlier step"}));
}

TEST(Form, EveryRankOfTheClusterHasItsPlan) {
  Plan plan = SmallPlan({2}).take();
  std::swap(plan.ranks[0], plan.ranks[1]);
  EXPECT_TRUE(refused(plan, {}, {"position 0 is that of rank 1"}));
  plan.ranks.pop_back();
  EXPECT_TRUE(refused(plan, {}, {"1 rank plans for a cluster of 2 ranks"}));
}

// --- Signals

TEST(Signals, AreReleasedByTheFirstPostThatReachesTheValue) {
  SmallPlan plan({2});
  const uint32_t first = plan[0].post(0, 0, 2);
  const uint32_t copy = plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), 8);
  plan[0].post(0, 0, 4, After{first, copy});
  const uint32_t wait = plan[1].wait(0, 0, 0, 3);
  plan[1].copy(0, {0, Buffer::scratch, 0}, plan[1].output(0), 8, After{wait});
  EXPECT_TRUE(accepted(plan.take(), {{0, 0, 1, 0, 8}}));
}

TEST(Signals, WaitForAValueNeverPosted) {
  SmallPlan plan({2});
  plan[0].post(0, 5, 2);
  plan[1].wait(0, 0, 5, 3);
  EXPECT_TRUE(refused(
      plan.take(), {},
      {"rank 1 step 0 (wait peer=0 slot=5 value=3)", "never posted", "rank 0 posts at most 2 to slot 5"}));
}

TEST(Signals, PostsOfOneCounterMustBeOrdered) {
  SmallPlan plan({1});
  const uint32_t first = plan[0].post(0, 0, 1);
  plan[0].post(0, 1, 1, After{first});
  plan[0].post(0, 0, 2);
  EXPECT_TRUE(refused(plan.take(), {}, {"rank 0 step 2", "is not ordered after step 0, which posts 1"}));
}

TEST(Signals, PostsMayBeOrderedThroughOtherSteps) {
  SmallPlan plan({1});
  const uint32_t first = plan[0].post(0, 0, 1);
  const uint32_t other = plan[0].post(0, 1, 1, After{first});
  plan[0].post(0, 0, 2, After{other});
  EXPECT_TRUE(accepted(plan.take(), {}));
}

TEST(Signals, PostsOfOneCounterMustGrow) {
  SmallPlan plan({1});
  const uint32_t first = plan[0].post(0, 0, 2);
  plan[0].post(0, 0, 2, After{first});
  EXPECT_TRUE(
      refused(plan.take(), {}, {"rank 0 step 1", "does not raise the counter: step 0 already posted 2"}));
}

// --- Deadlocks

TEST(Deadlock, TwoRanksThatWaitForEachOther) {
  SmallPlan plan({2});
  for (const int rank : {0, 1}) {
    const uint32_t wait = plan[rank].wait(0, 1 - rank, 0, 1);
    plan[rank].post(0, 0, 1, After{wait});
  }
  EXPECT_TRUE(refused(plan.take(), {},
                      {"deadlock, a cycle of 4 steps", "rank 0 step 0 (wait peer=1 slot=0 value=1)",
                       "rank 1 step 0 (wait peer=0 slot=0 value=1)"}));
}

TEST(Deadlock, TwoRanksThatReceiveBeforeTheySend) {
  SmallPlan plan({1, 1});
  for (const int rank : {0, 1}) {
    const uint32_t recv = plan[rank].recv(1 - rank, 0, plan[rank].output(0), 8);
    plan[rank].send(1 - rank, 0, plan[rank].input(0), 8, After{recv});
  }
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 1, 0, 8}, {1, 0, 0, 0, 8}}, {"deadlock, a cycle of 4 steps"}));
}

TEST(Deadlock, TwoRanksThatSendBeforeTheyReceiveRelyOnBuffering) {
  SmallPlan plan({1, 1});
  for (const int rank : {0, 1}) {
    const uint32_t send = plan[rank].send(1 - rank, 0, plan[rank].input(0), 8);
    plan[rank].recv(1 - rank, 0, plan[rank].output(0), 8, After{send});
  }
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 1, 0, 8}, {1, 0, 0, 0, 8}},
                      {"deadlock, a cycle of 2 steps", "needs its recv to be started"}));
}

TEST(Deadlock, OneRankThatSendsFirstBreaksTheCycle) {
  SmallPlan plan({1, 1});
  const uint32_t send = plan[0].send(1, 0, plan[0].input(0), 8);
  plan[0].recv(1, 0, plan[0].output(0), 8, After{send});
  const uint32_t recv = plan[1].recv(0, 0, plan[1].output(0), 8);
  plan[1].send(0, 0, plan[1].input(0), 8, After{recv});
  EXPECT_TRUE(accepted(plan.take(), {{0, 0, 1, 0, 8}, {1, 0, 0, 0, 8}}));
}

/// Rank 1 copies bytes [8, 16) of rank 0's input.
class OfferedInput : public ::testing::Test {
 protected:
  Plan read_where_offered(uint64_t offset, uint64_t bytes) {
    SmallPlan plan({2});
    plan[0].offer(offset, bytes);
    plan[0].post(0, 0, 1);
    const After ready{plan[1].wait(0, 0, 0, 1)};
    plan[1].copy(0, {0, Buffer::input, 8}, plan[1].output(0), 8, ready);
    plan[1].post(0, 0, 1);
    plan[0].wait(0, 1, 0, 1);
    return plan.take();
  }
  const std::vector<Transfer> expected_{{0, 8, 1, 0, 8}};
};

TEST_F(OfferedInput, IsReadWithin) {
  EXPECT_TRUE(accepted(read_where_offered(8, 8), expected_));
  EXPECT_TRUE(accepted(read_where_offered(0, 100), expected_));
}

// Of nothing else is there a copy, where peers cannot map the input itself.
TEST_F(OfferedInput, IsReadOutside) {
  EXPECT_TRUE(refused(read_where_offered(9, 8), expected_,
                      {"rank 1 step 1", "reads bytes [8, 16) of the input of rank 0, which offers [9, 17)"}));
  EXPECT_TRUE(refused(read_where_offered(8, 7), expected_, {"which offers [8, 15)"}));
}

TEST(Extent, GrowsToHoldAllThatItIncludes) {
  Extent extent;
  EXPECT_TRUE(extent.empty());
  extent.include(40, 0);
  EXPECT_TRUE(extent.empty());
  extent.include(40, 2);
  extent.include(16, 8);
  extent.include(20, 4);
  EXPECT_EQ(extent.begin, 16u);
  EXPECT_EQ(extent.end, 42u);
}

}  // namespace
}  // namespace epccl::plan::testing
