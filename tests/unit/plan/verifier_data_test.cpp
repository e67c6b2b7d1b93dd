// The verifier: data and races. Many of these plans would work in the order in which steps usually run; they
// must be refused because another order breaks them.
#include <gtest/gtest.h>

#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

// --- Right plans

TEST(Data, TwoStageIsAcceptedWithAnyNumberOfSlots) {
  for (const int nodes : {1, 2, 3, 5})
    for (const int locals : {1, 2, 4})
      for (const int slots : {1, 2, 100})
        EXPECT_TRUE(accepted(two_stage(nodes, locals, 8, slots), alltoall(nodes * locals, 8)))
            << nodes << " x " << locals << ", " << slots << " slots";
}

TEST(Data, TwoStageMovesWhatTheFormulasSay) {
  const int nodes = 4, locals = 3;
  const uint64_t block = 10;
  VerifyReport report;
  ASSERT_TRUE(
      verify(with_ends(two_stage(nodes, locals, block, 2)), alltoall(nodes * locals, block), &report).ok());
  EXPECT_EQ(report.links.messages, 12u * 3) << "nodes - 1 messages a rank";
  EXPECT_EQ(report.links.network_bytes, uint64_t{12} * 9 * block) << "each rank has 9 ranks on other nodes";
  EXPECT_EQ(report.links.rank_pairs.size(), 12u * 3);
  for (int source = 0; source < nodes; ++source) {
    EXPECT_EQ(report.links.egress(source), uint64_t{3} * 9 * block);
    EXPECT_EQ(report.links.ingress(source), uint64_t{3} * 9 * block);
    EXPECT_EQ(report.links.copied_in_node[static_cast<size_t>(source)], uint64_t{3} * 12 * block);
    EXPECT_EQ(report.links.copied_to_peers[static_cast<size_t>(source)], uint64_t{3} * 2 * 4 * block);
    for (int destination = 0; destination < nodes; ++destination)
      EXPECT_EQ(report.links.between_nodes(source, destination), source == destination ? 0 : 9 * block);
  }
}

TEST(Data, RowsMayGatherFromMessagesOfManyRanks) {
  SmallPlan plan({1, 1, 1});
  After recvs;
  for (const int source : {1, 2}) {
    plan[source].send(0, 0, plan[source].input(0), 12);
    recvs.push_back(plan[0].recv(source, 0, plan[0].scratch(16 * static_cast<uint64_t>(source - 1)), 12));
  }
  // Every other 4 bytes of scratch.
  for (uint64_t row = 0; row < 4; ++row)
    plan[0].copy(2, plan[0].scratch(8 * row), plan[0].output(4 * row), 4, recvs);
  const Plan made = plan.take();
  ASSERT_EQ(made.ranks[0].steps.back().rows, 4u);
  EXPECT_TRUE(accepted(made, {{1, 0, 0, 0, 4}, {1, 8, 0, 4, 4}, {2, 0, 0, 8, 4}, {2, 8, 0, 12, 4}}));
}

TEST(Data, OutputsMayBeReadOnceWritten) {
  SmallPlan plan({1});
  const uint32_t first = plan[0].copy(0, plan[0].input(0), plan[0].output(0), 8);
  plan[0].copy(2, plan[0].output(0), plan[0].output(8), 8, After{first});
  EXPECT_TRUE(accepted(plan.take(), {{0, 0, 0, 0, 8}, {0, 0, 0, 8, 8}}));
}

// --- Wrong data

TEST(WrongData, NamesWhatWasExpectedAndWhatWasFound) {
  SmallPlan plan({2});
  plan[1].copy(0, {0, Buffer::input, 4}, plan[1].output(0), 8);
  EXPECT_TRUE(refused(
      plan.take(), {{0, 0, 1, 0, 8}, {0, 8, 1, 100, 4}},
      {"plan small: rank 1 step 0 (copy 0.input+4 -> 1.output+0 bytes=8)",
       "wrong data in bytes [0, 8) of the output of rank 1", "expected: bytes [0, 8) of the input of rank 0",
       "found: bytes [4, 12) of the input of rank 0"}));
}

TEST(WrongData, FromTheWrongRankThroughTwoHops) {
  SmallPlan plan({2, 1});
  const uint32_t copy = plan[0].copy(0, {1, Buffer::input, 0}, plan[0].scratch(0), 8);
  plan[0].send(2, 0, plan[0].scratch(0), 8, After{copy});
  plan[2].recv(0, 0, plan[2].output(0), 8);
  EXPECT_TRUE(accepted(plan.take(), {{1, 0, 2, 0, 8}}));
  SmallPlan wrong({2, 1});
  const uint32_t own = wrong[0].copy(0, wrong[0].input(0), wrong[0].scratch(0), 8);
  wrong[0].send(2, 0, wrong[0].scratch(0), 8, After{own});
  wrong[2].recv(0, 0, wrong[2].output(0), 8);
  wrong[0].copy(0, wrong[0].input(0), wrong[0].output(0), 8);
  EXPECT_TRUE(refused(wrong.take(), {{1, 0, 2, 0, 8}, {0, 0, 0, 0, 8}},
                      {"rank 2 step 0", "expected: bytes [0, 8) of the input of rank 1",
                       "found: bytes [0, 8) of the input of rank 0"}));
}

TEST(WrongData, OutputWrittenTwice) {
  SmallPlan plan({1});
  const uint32_t first = plan[0].copy(0, plan[0].input(0), plan[0].output(0), 8);
  plan[0].copy(2, plan[0].input(4), plan[0].output(4), 4, After{first});
  EXPECT_TRUE(refused(
      plan.take(), {{0, 0, 0, 0, 8}},
      {"rank 0 step 1", "writes bytes [4, 8) of the output of rank 0 a second time", "rank 0 step 0"}));
}

TEST(WrongData, OutputNotWritten) {
  SmallPlan plan({1});
  plan[0].copy(0, plan[0].input(0), plan[0].output(0), 4);
  plan[0].copy(2, plan[0].input(6), plan[0].output(6), 2);
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 0, 0, 8}},
                      {"plan small", "bytes [4, 6) of the output of rank 0 are never written",
                       "expected: bytes [4, 6) of the input of rank 0"}));
}

TEST(WrongData, OutputThatNobodyAskedFor) {
  SmallPlan plan({1});
  plan[0].copy(0, plan[0].input(0), plan[0].output(0), 8);
  EXPECT_TRUE(
      refused(plan.take(), {{0, 0, 0, 0, 3}, {0, 5, 0, 5, 3}},
              {"rank 0 step 0", "writes bytes [3, 5) of the output of rank 0, which nothing should write"}));
}

TEST(WrongData, ContradictingExpectations) {
  SmallPlan plan({1});
  plan[0].copy(0, plan[0].input(0), plan[0].output(0), 8);
  const Plan made = plan.take();
  const std::vector<Transfer> overlapping{{0, 0, 0, 0, 8}, {0, 4, 0, 4, 2}};
  EXPECT_EQ(verify(made, overlapping).code(), Code::invalid_argument);
  EXPECT_TRUE(refused(made, overlapping, {"overlap in the output of rank 0 at byte 4"}));
  EXPECT_TRUE(refused(made, {{0, 0, 9, 0, 8}}, {"rank 9, but there are 1 ranks"}));
  EXPECT_TRUE(refused(made, {{0, UINT64_MAX, 0, 0, 8}}, {"passes 2^64"}));
}

// --- Races

TEST(Race, ScratchReadWithoutWaiting) {
  SmallPlan plan({2});
  const uint32_t copy = plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), 8);
  plan[0].post(0, 0, 1, After{copy});
  plan[1].wait(0, 0, 0, 1);  // nothing depends on it
  plan[1].copy(2, {0, Buffer::scratch, 0}, plan[1].output(0), 8);
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 1, 0, 8}},
                      {"rank 1 step 1 (copy 0.scratch+0 -> 1.output+0 bytes=8)",
                       "race: reads bytes [0, 8) of the scratch of rank 0",
                       "rank 0 step 0 (copy 0.input+0 -> 0.scratch+0 bytes=8) writes, and nothing makes that "
                       "complete first"}));
}

TEST(Race, ScratchReadAfterATooEarlyPost) {
  SmallPlan plan({2});
  plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), 8);
  plan[0].post(0, 0, 1);  // does not depend on the copy
  const uint32_t wait = plan[1].wait(0, 0, 0, 1);
  plan[1].copy(2, {0, Buffer::scratch, 0}, plan[1].output(0), 8, After{wait});
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 1, 0, 8}},
                      {"rank 1 step 1", "race: reads bytes [0, 8)", "rank 0 step 0"}));
}

TEST(Race, OnePartOfTheScratchIsNotWaitedFor) {
  SmallPlan plan({1, 1, 1});
  for (const int source : {1, 2}) plan[source].send(0, 0, plan[source].input(0), 8);
  const uint32_t first = plan[0].recv(1, 0, plan[0].scratch(0), 8);
  plan[0].recv(2, 0, plan[0].scratch(8), 8);
  plan[0].copy(2, plan[0].scratch(0), plan[0].output(0), 16, After{first});
  EXPECT_TRUE(refused(
      plan.take(), {{1, 0, 0, 0, 8}, {2, 0, 0, 8, 8}},
      {"rank 0 step 2", "race: reads bytes [8, 16) of the scratch of rank 0", "rank 0 step 1 (recv from=2"}));
}

TEST(Race, SendOfScratchThatIsNotReady) {
  SmallPlan plan({1, 1});
  plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), 8);
  plan[0].send(1, 0, plan[0].scratch(0), 8);
  plan[1].recv(0, 0, plan[1].output(0), 8);
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 1, 0, 8}},
                      {"rank 0 step 1 (send", "race: reads bytes [0, 8)", "rank 0 step 0"}));
}

TEST(Race, ScratchThatNobodyWrites) {
  SmallPlan plan({1});
  const uint32_t copy = plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), 6);
  plan[0].copy(2, plan[0].scratch(0), plan[0].output(0), 8, After{copy});
  EXPECT_TRUE(
      refused(plan.take(), {{0, 0, 0, 0, 8}},
              {"rank 0 step 1", "reads bytes [6, 8) of the scratch of rank 0, which no other step writes"}));
}

TEST(Race, OutputReadBeforeItIsWritten) {
  SmallPlan plan({1});
  plan[0].copy(0, plan[0].input(0), plan[0].output(0), 8);
  plan[0].copy(2, plan[0].output(0), plan[0].output(8), 8);
  Plan made = plan.take();
  EXPECT_TRUE(
      refused(made, {{0, 0, 0, 0, 8}, {0, 0, 0, 8, 8}},
              {"rank 0 step 1", "race: reads bytes [0, 8) of the output of rank 0", "rank 0 step 0"}));
}

/// Rank 1 sends two messages through the same 8 bytes of rank 0's scratch; rank 0 takes each out again.
Plan ring(bool second_waits_for_copy) {
  SmallPlan plan({1, 1});
  plan[1].send(0, 0, plan[1].input(0), 8);
  plan[1].send(0, 1, plan[1].input(8), 8);
  const uint32_t first = plan[0].recv(1, 0, plan[0].scratch(0), 8);
  const uint32_t copy = plan[0].copy(2, plan[0].scratch(0), plan[0].output(0), 8, After{first});
  const uint32_t second =
      plan[0].recv(1, 1, plan[0].scratch(0), 8, After{second_waits_for_copy ? copy : first});
  plan[0].copy(2, plan[0].scratch(0), plan[0].output(8), 8, After{second});
  return plan.take();
}

TEST(Race, RingReusedWithoutCredit) {
  const std::vector<Transfer> expected{{1, 0, 0, 0, 8}, {1, 8, 0, 8, 8}};
  EXPECT_TRUE(accepted(ring(true), expected));
  EXPECT_TRUE(
      refused(ring(false), expected,
              {"rank 0 step 2 (recv from=1 tag=1", "race: overwrites bytes [0, 8) of the scratch of rank 0",
               "rank 0 step 1 (copy 0.scratch+0 -> 0.output+0 bytes=8) reads"}));
}

TEST(Race, RingOfTheTwoStagePlanWithoutACredit) {
  Plan plan = two_stage(4, 2, 8, 1);
  ASSERT_TRUE(accepted(plan, alltoall(8, 8)));
  // The second recv forgets the credit of the other rank of its node.
  for (Step& step : plan.ranks[5].steps)
    if (step.kind == Kind::recv && step.dependency_count == 2) {
      step.dependency_count = 1;
      break;
    }
  EXPECT_TRUE(
      refused(plan, alltoall(8, 8), {"plan two_stage: rank 5 step", "race: ", "of the scratch of rank 5"}));
}

TEST(Race, TwoWritersOfTheSameScratch) {
  SmallPlan plan({1, 1});
  for (const uint32_t tag : {0u, 1u}) plan[1].send(0, tag, plan[1].input(uint64_t{8} * tag), 8);
  const uint32_t first = plan[0].recv(1, 0, plan[0].scratch(0), 8);
  const uint32_t second = plan[0].recv(1, 1, plan[0].scratch(4), 8);
  plan[0].copy(2, plan[0].scratch(0), plan[0].output(0), 12, After{first, second});
  EXPECT_TRUE(
      refused(plan.take(), {{1, 0, 0, 0, 4}, {1, 8, 0, 4, 8}}, {"race: overwrites bytes [4, 8)", "writes"}));
}

/// Rank 0 sends its scratch to rank 1, then fills it anew after `send` or after rank 1's answer.
Plan refill(bool after_send) {
  SmallPlan plan({1, 1});
  const uint32_t fill = plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), 8);
  const uint32_t send = plan[0].send(1, 0, plan[0].scratch(0), 8, After{fill});
  const uint32_t answer = plan[0].recv(1, 0, plan[0].scratch(8), 0);
  const uint32_t refilled = plan[0].copy(0, plan[0].input(8), plan[0].scratch(0), 8,
                                         After{answer, after_send ? send : Builder::none});
  plan[0].copy(2, plan[0].scratch(0), plan[0].output(0), 8, After{refilled});
  const uint32_t recv = plan[1].recv(0, 0, plan[1].output(0), 8);
  plan[1].send(0, 0, plan[1].input(0), 0, After{recv});
  return plan.take();
}

TEST(Race, ThatAMessageArrivedDoesNotSayThatItsSendIsComplete) {
  const std::vector<Transfer> expected{{0, 0, 1, 0, 8}, {0, 8, 0, 0, 8}};
  EXPECT_TRUE(accepted(refill(true), expected));
  EXPECT_TRUE(refused(
      refill(false), expected,
      {"rank 0 step 3", "race: overwrites bytes [0, 8) of the scratch of rank 0", "rank 0 step 1 (send"}));
}

TEST(Race, CopyThatOverlapsItself) {
  SmallPlan plan({1});
  const uint32_t fill = plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), 8);
  const uint32_t move = plan[0].copy(1, plan[0].scratch(0), plan[0].scratch(4), 8, After{fill});
  plan[0].copy(2, plan[0].scratch(4), plan[0].output(0), 8, After{move});
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 0, 0, 8}}, {"rank 0 step 1", "reads and writes bytes [4, 8)"}));
}

// --- Ends: buffers are the caller's again when its rank has done its last step

TEST(Ends, OfARankWhoseInputIsReadStill) {
  const std::vector<Transfer> expected{{0, 0, 1, 0, 8}};
  for (const bool waits : {true, false}) {
    SmallPlan plan({2});
    plan[0].post(0, 0, 1);
    const uint32_t ready = plan[1].wait(2, 0, 0, 1);
    const uint32_t read = plan[1].copy(2, {0, Buffer::input, 0}, plan[1].output(0), 8, After{ready});
    plan[1].post(2, 0, 1, After{read});
    if (waits) plan[0].wait(2, 1, 0, 1);
    const Plan made = plan.take();
    if (waits) {
      EXPECT_TRUE(verify(made, expected).ok());
    } else {
      EXPECT_TRUE(
          refused(made, expected,
                  {"rank 1 step 1 (copy 0.input+0", "reads the input of rank 0, which waits for nothing"}));
    }
  }
}

TEST(Ends, OfARankWhoseOutputIsWrittenStill) {
  SmallPlan plan({2});
  plan[0].copy(2, plan[0].input(0), {1, Buffer::output, 0}, 8);
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 1, 0, 8}},
                      {"rank 0 step 0", "writes the output of rank 1, which waits for nothing"}));
}

TEST(Ends, OfARankThatWaitsForAnotherReaderOnly) {
  SmallPlan plan({3});
  for (const int reader : {1, 2}) {
    const uint32_t read = plan[reader].copy(2, {0, Buffer::input, 0}, plan[reader].output(0), 8);
    plan[reader].post(2, 0, 1, After{read});
  }
  plan[0].wait(2, 1, 0, 1);
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 1, 0, 8}, {0, 0, 2, 0, 8}},
                      {"rank 2 step 0", "reads the input of rank 0"}));
}

TEST(Ends, MayBeLearntOfByWayOfAnotherRank) {
  SmallPlan plan({3});
  const uint32_t read = plan[1].copy(2, {0, Buffer::input, 0}, plan[1].output(0), 8);
  plan[1].post(2, 0, 1, After{read});
  const uint32_t told = plan[2].wait(2, 1, 0, 1);
  plan[2].post(2, 0, 1, After{told});
  plan[0].wait(2, 2, 0, 1);
  EXPECT_TRUE(verify(plan.take(), std::vector<Transfer>{{0, 0, 1, 0, 8}}).ok());
}

}  // namespace
}  // namespace epccl::plan::testing
