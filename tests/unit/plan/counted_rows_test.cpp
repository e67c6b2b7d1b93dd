// Steps whose rows are counted by the tables: one plan for all tables of the same shape.
#include <gtest/gtest.h>

#include "plan/simulator.hpp"
#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

constexpr uint64_t row = 8;
const Builder::RowCount up_to_four{4, 0};

/// Rank 0 sends rows to rank 1 of another node, which scatters them, last first: at most four.
Plan plan_for(uint32_t rows) {
  SmallTables tables;
  const uint32_t list = tables.list({3, 2, 1, 0});
  tables.count(rows);
  SmallPlan plan({1, 1});
  for (const int rank : {0, 1}) plan[rank].use_tables(tables.share());
  plan[0].send(1, 0, plan[0].input(0), up_to_four, row);
  const uint32_t recv = plan[1].recv(0, 0, plan[1].scratch(0), up_to_four, row);
  plan[1].move_rows(2, {plan[1].scratch(0)}, {plan[1].output(0), 0, list}, up_to_four, row, After{recv});
  return plan.take();
}

std::vector<Transfer> expected_for(uint32_t rows) {
  std::vector<Transfer> expected;
  for (uint32_t i = 0; i < rows; ++i) expected.push_back({0, i * row, 1, (3 - i) * row, row});
  return expected;
}

Plan with_tables_of(Plan plan, const Plan& other) {
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    plan.ranks[rank].tables = other.ranks[rank].tables;
    for (Step& step : plan.ranks[rank].steps) count_rows(step, *plan.ranks[rank].tables);
  }
  return plan;
}

TEST(CountedRows, AreAsManyAsTheTablesSay) {
  for (uint32_t rows = 0; rows <= 4; ++rows)
    EXPECT_TRUE(accepted(plan_for(rows), expected_for(rows))) << rows;
}

TEST(CountedRows, FollowOtherTables) {
  for (uint32_t rows = 0; rows <= 4; ++rows)
    EXPECT_TRUE(accepted(with_tables_of(plan_for(2), plan_for(rows)), expected_for(rows))) << rows;
}

TEST(CountedRows, HaveRoomForTheMost) {
  EXPECT_EQ(plan_for(1).ranks[1].scratch_bytes, 4 * row);
}

TEST(CountedRows, AreRefusedWhereTheStepSaysAnotherNumber) {
  Plan plan = plan_for(2);
  plan.ranks[1].steps[1].rows = 3;
  EXPECT_TRUE(
      refused(plan, expected_for(2), {"rank 1 step 1", "has 3 rows, but count 0 of the tables is 2"}));
}

TEST(CountedRows, AreRefusedWithoutTheCount) {
  Plan plan = plan_for(2);
  plan.ranks[1].steps[1].count = 1;
  EXPECT_TRUE(refused(plan, expected_for(2), {"as many rows as count 1 says, but there are only 1 counts"}));
}

// Copies have a stride, and nothing fits them to other tables.
TEST(CountedRows, AreNotThoseOfACopy) {
  SmallTables tables;
  tables.count(1);
  SmallPlan small({1});
  small[0].use_tables(tables.share());
  small[0].copy(0, small[0].input(0), small[0].output(0), row);
  Plan plan = small.take();
  plan.ranks[0].steps[0].count = 0;
  EXPECT_TRUE(refused(plan, {{0, 0, 0, 0, row}},
                      {"rank 0 step 0", "is a copy whose rows are counted by the tables"}));
}

TEST(CountedRows, ThatDifferOnTheTwoEndsOfAMessageAreRefused) {
  Plan plan = plan_for(2);
  plan.ranks[0] = plan_for(3).ranks[0];
  EXPECT_TRUE(refused(plan, expected_for(3), {"24 bytes where sent", "16 bytes where received"}));
}

// A message of no rows is not sent: it orders nothing.
TEST(CountedRows, OfAnEmptyMessageMakeNobodyWait) {
  SmallTables tables;
  tables.count(0);
  SmallPlan plan({1, 1});
  for (const int rank : {0, 1}) plan[rank].use_tables(tables.share());
  const uint32_t copied = plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), row);
  plan[0].send(1, 0, plan[0].scratch(0), up_to_four, row, After{copied});
  const uint32_t recv = plan[1].recv(0, 0, plan[1].scratch(0), up_to_four, row);
  plan[1].copy(2, plan[1].scratch(0), plan[1].output(0), row, After{recv});
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 1, 0, row}}, {"reads bytes [0, 8) of the scratch of rank 1"}));
}

TEST(CountedRows, TakeTheirTime) {
  const auto none = simulate(plan_for(0)), one = simulate(plan_for(1));
  ASSERT_TRUE(none.ok() && one.ok());
  EXPECT_EQ(none->total, 0);
  EXPECT_GT(one->total, 0);
}

}  // namespace
}  // namespace epccl::plan::testing
