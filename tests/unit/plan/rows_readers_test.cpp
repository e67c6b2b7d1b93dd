// Printer, byte counts and simulator: steps that name rows.
#include <gtest/gtest.h>

#include "plan/printer.hpp"
#include "plan/simulator.hpp"
#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

/// Rank 0 moves three rows to rank 1, which adds them up with rows of its own.
Plan every_kind() {
  SmallTables tables;
  const uint32_t from = tables.list({5, 1, 2}), to = tables.list({9, 10, 8});
  tables.sum({{0, 0, 1, ends_node}, {8, 1, 1, ends_node}});
  tables.sum({});
  tables.sum({{1, 0, plain, ends_node}, {9, 1, plain, goes_on}, {10, 1, plain, ends_node}});
  SmallPlan plan({2});
  plan[0].use_tables(tables.share());
  plan[1].use_tables(tables.share());
  const uint32_t move =
      plan[0].move_rows(0, {plan[0].input(0), 0, from}, {plan[0].scratch(16), 8, to}, 3, 100);
  plan[0].post(0, 0, 1, After{move});
  const uint32_t wait = plan[1].wait(0, 0, 0, 1);
  const RowSource sources[] = {{plan[1].input(0)}, {{0, Buffer::scratch, 16}, 8}};
  plan[1].reduce_rows(2, 0, sources, {plan[1].output(0)}, 3, 100, After{wait});
  plan[1].move_rows(1, {{0, Buffer::input, 0}, 0, from}, {plan[1].scratch(0)}, 2, 100);
  return plan.take();
}

TEST(RowsText, NamesListsSumsAndSources) {
  EXPECT_EQ(
      to_text(every_kind()),
      "plan small: 2 ranks on 1 nodes\n"
      "rank 0: 2 steps, input 600 B, output 0 B, scratch 316 B\n"
      "rank 0 step 0 stage 0 move_rows 0.input+0[list 0] -> 0.scratch+16[list 3 from 8] rows=3 bytes=100\n"
      "rank 0 step 1 stage 0 post slot=0 value=1 after=0\n"
      "rank 1: 3 steps, input 200 B, output 300 B, scratch 200 B\n"
      "rank 1 step 0 stage 0 wait peer=0 slot=0 value=1\n"
      "rank 1 step 1 stage 2 reduce_rows first_sum=0 sources=2 -> 1.output+0 rows=3 bytes=100"
      " of 1.input+0,0.scratch+16[from 8] after=0\n"
      "rank 1 step 2 stage 1 move_rows 0.input+0[list 0] -> 1.scratch+0 rows=2 bytes=100\n");
}

TEST(RowsText, OfSums) {
  std::vector<RowSum::Term> terms{{0, 8, 2, goes_on}, {1, 0, plain, ends_rank}, {1, 8, 0, ends_node}};
  EXPECT_EQ(to_text(terms), "(0.input+8 weight=2 + 1.input+0 ends=rank + 1.input+8 weight=0 ends=rank,node)");
  EXPECT_EQ(to_text(std::span<const RowSum::Term>()), "()");
  terms.assign(9, {3, 0, plain, goes_on});
  EXPECT_TRUE(to_text(terms).ends_with(" + 3.input+0 + ... 9 terms)")) << to_text(terms);
}

TEST(RowsBytes, CountWhatMovesAndWhatSumsReadAndWrite) {
  const LinkBytes links = count_link_bytes(every_kind());
  const uint64_t moved = 300 + 200, read = 500, written = 300;
  EXPECT_EQ(links.copied_bytes, moved + read + written);
  EXPECT_EQ(links.copied_in_node, (std::vector<uint64_t>{moved + read + written}));
  EXPECT_EQ(links.copied_to_peers, (std::vector<uint64_t>{200 + 300})) << "one move, three terms";
  EXPECT_EQ(links.messages, 0u);
}

TEST(RowsBytes, SumsWrittenToAPeerCrossOnce) {
  SmallTables tables;
  tables.sum({{0, 0, plain, goes_on}, {1, 0, plain, ends_node}});
  SmallPlan plan({2});
  plan[0].use_tables(tables.share());
  const RowSource sources[] = {{plan[0].input(0)}};
  plan[0].reduce_rows(0, 0, sources, {{1, Buffer::output, 0}}, 1, 10);
  EXPECT_EQ(count_link_bytes(plan.take()).copied_to_peers, (std::vector<uint64_t>{10}));
}

/// Ranks 0 and 1 have a row of 100 bytes each for rank 2, which may fetch that of rank 1.
Plan two_rows(bool fetches) {
  SmallPlan plan({3});
  for (const int rank : {0, 1}) {
    const uint32_t move = plan[rank].move_rows(
        1, {plan[rank].input(0)}, {{2, Buffer::output, 100 * static_cast<uint64_t>(rank)}}, 1, 100);
    if (rank == 1) plan[rank].unless_fetched(move);
  }
  if (!fetches) return plan.take();
  plan[2].fetch();
  plan[2].move_rows(1, {{1, Buffer::input, 0}}, {plan[2].output(100)}, 1, 100);
  return plan.take();
}

TEST(RowsText, NamesWhoFetchesAndWhatIsThenLeftOut) {
  EXPECT_EQ(to_text(two_rows(true)),
            "plan small: 3 ranks on 1 nodes\n"
            "rank 0: 1 steps, input 100 B, output 0 B, scratch 0 B\n"
            "rank 0 step 0 stage 1 move_rows 0.input+0 -> 2.output+0 rows=1 bytes=100\n"
            "rank 1: 1 steps, input 100 B, output 0 B, scratch 0 B\n"
            "rank 1 step 0 stage 1 move_rows 1.input+0 -> 2.output+100 rows=1 bytes=100 unless fetched\n"
            "rank 2: 1 steps, input 0 B, output 200 B, scratch 0 B, fetches\n"
            "rank 2 step 0 stage 1 move_rows 1.input+0 -> 2.output+100 rows=1 bytes=100\n");
}

TEST(RowsBytes, OfWhatIsFetchedCountOnce) {
  for (const bool fetches : {false, true}) {
    const Plan plan = two_rows(fetches);
    EXPECT_TRUE(accepted(plan, {{0, 0, 2, 0, 100}, {1, 0, 2, 100, 100}}));
    const LinkBytes links = count_link_bytes(plan);
    EXPECT_EQ(links.copied_bytes, 200u);
    EXPECT_EQ(links.copied_in_node, std::vector<uint64_t>{200});
    EXPECT_EQ(links.copied_to_peers, std::vector<uint64_t>{200});
  }
}

/// A byte takes a nanosecond, a copy 1 us, a row after the first 10 ns, a signal nothing.
SimulationModel slow_memory() {
  SimulationModel model;
  model.copy_latency = 1e-6;
  model.copy_row_latency = 1e-8;
  model.copy_rate = 1e9;
  model.node_copy_rate = 1e12;
  model.signal_latency = 0;
  return model;
}

TEST(RowsTimes, MovesCostTheirRowsAndSumsWhatTheyRead) {
  const auto timeline = simulate(every_kind(), slow_memory());
  ASSERT_TRUE(timeline.ok()) << timeline.status().message();
  const StepTime move = timeline->ranks[0][0], second_move = timeline->ranks[1][2],
                 sum = timeline->ranks[1][1];
  EXPECT_NEAR(move.end, 1e-6 + 2e-8 + 300e-9, 1e-12);
  EXPECT_NEAR(second_move.end - second_move.start, 1e-6 + 1e-8 + 200e-9, 1e-12);
  EXPECT_NEAR(sum.end - sum.start, 1e-6 + 4e-8 + 500e-9, 1e-12) << "five terms";
  EXPECT_EQ(timeline->memory[0].bytes, 1000u);
}

TEST(RowsTimes, WhatIsFetchedTakesWhoBringsItNoTime) {
  const double moved = 1e-6 + 100e-9;
  const auto brought = simulate(two_rows(false), slow_memory());
  ASSERT_TRUE(brought.ok()) << brought.status().message();
  EXPECT_NEAR(brought->ranks[1][0].end, moved, 1e-12);
  const auto fetched = simulate(two_rows(true), slow_memory());
  ASSERT_TRUE(fetched.ok()) << fetched.status().message();
  EXPECT_NEAR(fetched->ranks[0][0].end, moved, 1e-12);
  EXPECT_EQ(fetched->ranks[1][0].end, 0.0);
  EXPECT_NEAR(fetched->ranks[2][0].end, moved, 1e-12);
  EXPECT_EQ(fetched->memory[0].bytes, 200u);
}

TEST(RowsTimes, SumsOfNothingCostTheirRows) {
  SmallTables tables;
  tables.sum({});
  tables.sum({});
  SmallPlan plan({1});
  plan[0].use_tables(tables.share());
  plan[0].reduce_rows(0, 0, {}, {plan[0].output(0)}, 2, 100);
  const auto timeline = simulate(plan.take(), slow_memory());
  ASSERT_TRUE(timeline.ok()) << timeline.status().message();
  EXPECT_NEAR(timeline->total, 1e-6 + 1e-8 + 200e-9, 1e-12);
}

TEST(RowsPicture, HasBarsForMovesAndSums) {
  const Plan plan = every_kind();
  const auto timeline = simulate(plan, slow_memory());
  ASSERT_TRUE(timeline.ok());
  const std::string svg = svg_timeline(*timeline, plan);
  for (const char* text :
       {"<title>rank 0 step 0 stage 0 move_rows", "<title>rank 1 step 1 stage 2 reduce_rows"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;
}

}  // namespace
}  // namespace epccl::plan::testing
