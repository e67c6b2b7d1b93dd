// The Builder's steps that name rows: what they touch, what it keeps of them.
#include <gtest/gtest.h>

#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

TEST(RowsBuilder, DropsRowsOfNothing) {
  Builder builder(0);
  const RowSource sources[] = {{builder.input(0)}};
  EXPECT_EQ(builder.move_rows(0, {builder.input(0)}, {builder.scratch(0)}, 0, 8), Builder::none);
  EXPECT_EQ(builder.move_rows(0, {builder.input(0)}, {builder.scratch(0)}, 3, 0), Builder::none);
  EXPECT_EQ(builder.reduce_rows(0, 0, sources, {builder.scratch(0)}, 0, 8), Builder::none);
  const RankPlan plan = std::move(builder).take();
  EXPECT_TRUE(plan.steps.empty());
  EXPECT_TRUE(plan.row_sources.empty());
  EXPECT_EQ(plan.input_bytes + plan.scratch_bytes, 0u);
}

TEST(RowsBuilder, KeepsWhatTheStepIsGiven) {
  SmallTables tables;
  const uint32_t from = tables.list({7, 5}), to = tables.list({12, 10});
  Builder builder(3);
  builder.use_tables(tables.share());
  const uint32_t post = builder.post(0, 0, 1);
  const uint32_t move = builder.move_rows(2, {builder.input(64), 4, from}, {{1, Buffer::scratch, 32}, 10, to},
                                          2, 8, After{post});
  const RankPlan plan = std::move(builder).take();
  ASSERT_EQ(move, 1u);
  const Step& step = plan.steps[move];
  EXPECT_EQ(step.kind, Kind::move_rows);
  EXPECT_EQ(step.stage, 2);
  EXPECT_EQ(step.source, (Location{3, Buffer::input, 64}));
  EXPECT_EQ(step.source_list, from);
  EXPECT_EQ(step.source_first_row, 4u);
  EXPECT_EQ(step.destination, (Location{1, Buffer::scratch, 32}));
  EXPECT_EQ(step.destination_list, to);
  EXPECT_EQ(step.destination_first_row, 10u);
  EXPECT_EQ(step.total_bytes(), 16u);
  EXPECT_EQ(plan.dependencies_of(step).size(), 1u);
}

TEST(RowsBuilder, ListedRowsReachAsFarAsTheHighest) {
  SmallTables tables;
  tables.list({100});
  const uint32_t from = tables.list({7, 9, 5}), to = tables.list({3, 0, 2});
  tables.list({100});
  Builder builder(0);
  builder.use_tables(tables.share());
  builder.move_rows(0, {builder.input(64), 4, from}, {builder.scratch(16), 0, to}, 3, 8);
  const RankPlan plan = std::move(builder).take();
  EXPECT_EQ(plan.input_bytes, 64u + 6 * 8) << "row 9, where row 4 is the first";
  EXPECT_EQ(plan.scratch_bytes, 16u + 4 * 8);
}

TEST(RowsBuilder, ConsecutiveRowsLieAtTheLocation) {
  Builder builder(0);
  builder.move_rows(0, {builder.scratch(8), 1000}, {builder.output(16), 2000}, 5, 8);
  const RankPlan plan = std::move(builder).take();
  EXPECT_EQ(plan.scratch_bytes, 48u);
  EXPECT_EQ(plan.output_bytes, 56u);
}

TEST(RowsBuilder, SumsReachAsFarAsTheirTerms) {
  SmallTables tables;
  tables.sum({{99, 0, plain, ends_node}});
  const uint32_t first =
      tables.sum({{3, 0, plain, goes_on}, {8, 1, plain, goes_on}, {50, 2, plain, ends_node}});
  tables.sum({{1, 0, plain, ends_node}});
  Builder builder(1);
  builder.use_tables(tables.share());
  const RowSource sources[] = {{builder.input(4)}, {builder.scratch(0), 6}, {{0, Buffer::input, 0}}};
  builder.reduce_rows(2, first, sources, {builder.output(8)}, 2, 10);
  const RankPlan plan = std::move(builder).take();
  EXPECT_EQ(plan.input_bytes, 44u) << "row 3 of the input, not row 50 of the peer's";
  EXPECT_EQ(plan.scratch_bytes, 30u) << "row 8, where row 6 is the first";
  EXPECT_EQ(plan.output_bytes, 28u);
}

TEST(RowsBuilder, EveryReductionHasSourcesOfItsOwn) {
  SmallTables tables;
  const uint32_t sum = tables.sum({{0, 0, plain, ends_node}});
  Builder builder(0);
  builder.use_tables(tables.share());
  const RowSource two[] = {{builder.input(0)}, {{1, Buffer::input, 0}}}, one[] = {{builder.input(8)}};
  builder.reduce_rows(0, sum, two, {builder.output(0)}, 1, 8);
  builder.reduce_rows(0, sum, one, {builder.output(8)}, 1, 8);
  const RankPlan plan = std::move(builder).take();
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[0].source_count, 2);
  EXPECT_EQ(plan.steps[1].first_source, 2u);
  EXPECT_EQ(plan.steps[1].source_count, 1);
  EXPECT_EQ(plan.row_sources[2].at.offset, 8u);
}

TEST(RowsBuilder, LeavesWhatIsNotInTheTablesToTheChecks) {
  SmallTables tables;
  const uint32_t list = tables.list({1, 2});
  Builder builder(0);
  const RowSource sources[] = {{builder.input(0)}};
  builder.move_rows(0, {builder.input(0), 0, list}, {builder.scratch(0)}, 2, 8);
  builder.reduce_rows(0, 0, sources, {builder.scratch(0)}, 2, 8);
  builder.use_tables(tables.share());
  builder.move_rows(0, {builder.input(0), 0, list}, {builder.scratch(0)}, 3, 8);
  builder.move_rows(0, {builder.input(0), 9, list}, {builder.scratch(0)}, 2, 8);
  const RankPlan plan = std::move(builder).take();
  EXPECT_EQ(plan.steps.size(), 4u);
  EXPECT_EQ(plan.input_bytes, 0u);
}

}  // namespace
}  // namespace epccl::plan::testing
