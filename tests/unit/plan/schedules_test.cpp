// The verifier against the truth: plans are damaged at random, and those it accepts are run with real bytes
// in many random orders. Every order must end, and end with the right output.
#include <gtest/gtest.h>

#include <random>

#include "plan/printer.hpp"
#include "random_run.hpp"
#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

/// Changes one thing of one step, or drops one dependency. Returns what it did.
std::string damage(Plan& plan, std::mt19937& random) {
  while (true) {
    RankPlan& rank = plan.ranks[random() % plan.ranks.size()];
    const auto index = static_cast<uint32_t>(random() % rank.steps.size());
    Step& step = rank.steps[index];
    const std::string before = to_text(rank, index);
    const uint64_t offset = 4 * (random() % 3);
    switch (random() % 6) {
      case 0:
      case 1:
        if (step.dependency_count == 0) continue;
        // The last takes the place of the one dropped.
        std::swap(rank.dependencies[step.first_dependency + random() % step.dependency_count],
                  rank.dependencies[step.first_dependency + step.dependency_count - 1]);
        --step.dependency_count;
        break;
      case 2:
        step.source.offset += offset;
        break;
      case 3:
        step.destination.offset += offset;
        break;
      case 4:
        if (step.kind != Kind::wait || step.value == 0) continue;
        --step.value;
        break;
      default:
        if (step.kind != Kind::wait) continue;
        step.peer = plan.cluster.rank_at(plan.cluster.node_of(rank.rank), 0);
    }
    return before + "\n  became " + to_text(rank, index);
  }
}

void expect_right_in_any_order(const Plan& plan, const std::vector<Transfer>& expected,
                               std::mt19937& random) {
  for (int run = 0; run < 15; ++run) {
    RandomRun random_run(plan, 64, random);
    ASSERT_TRUE(random_run.run()) << "accepted, but stops";
    for (const Transfer& transfer : expected)
      for (uint64_t at = 0; at < transfer.bytes; ++at)
        ASSERT_EQ(random_run.output(transfer.destination_rank, transfer.destination_offset + at),
                  RandomRun::input(transfer.source_rank, transfer.source_offset + at))
            << "accepted, but wrong in the output of rank " << transfer.destination_rank;
  }
}

TEST(Schedules, WhatIsAcceptedIsRightInEveryOrder) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "EPCCL_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const std::vector<Transfer> expected = alltoall(8, 4);
  int refusals = 0;
  constexpr int rounds = 400;
  for (int round = 0; round < rounds; ++round) {
    Plan plan = two_stage(4, 2, 4, 1 + static_cast<int>(random() % 2));
    const std::string what = round == 0 ? "nothing" : damage(plan, random);
    SCOPED_TRACE("damage: " + what);
    if (!verify(with_ends(plan), expected).ok()) {
      ASSERT_NE(round, 0);
      ++refusals;
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(expect_right_in_any_order(plan, expected, random));
  }
  // Some damage does no harm (a dependency that another one implies), most does.
  EXPECT_GT(refusals, rounds / 4);
}

}  // namespace
}  // namespace epccl::plan::testing
