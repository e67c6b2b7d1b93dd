// The verifier: rows that are sums, made at once or node by node.
#include <gtest/gtest.h>

#include <algorithm>

#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

constexpr uint64_t row = 8;

/// Ranks 0 and 1 on one node, 2 and 3 on another. Rank 2 makes the sums of its node, sends them to rank 0,
/// and that makes three rows of output: one over both nodes, one of the other node only, one of nothing. A
/// test breaks it.
struct TwoLevels {
  // Sources: 0 own input, 1 the peer's input.
  std::vector<std::vector<RowTerm>> parts{{{1, 0, 3, ends_rank}, {0, 1, 0, goes_on}, {2, 1, 1, ends_node}},
                                          {{2, 0, plain, ends_node}}};
  // Sources: 0 own input, 1 the peer's input, 2 the scratch with the other node's sums, which are rows 4
  // and 5.
  std::vector<std::vector<RowTerm>> totals{
      {{0, 0, 0, ends_rank}, {1, 1, 1, ends_node}, {4, 2, plain, ends_node}}, {{5, 2, plain, ends_node}}, {}};
  std::vector<uint32_t> destinations{1, 0, 2};
  bool total_waits = true;
  std::vector<Transfer> transfers;
  std::vector<RowSum> expected{{0,
                                row,
                                row,
                                {{0, 0, 0, ends_rank},
                                 {1, 8, 1, ends_node},
                                 {2, 8, 3, ends_rank},
                                 {3, 0, 0, goes_on},
                                 {3, 16, 1, ends_node}}},
                               {0, 0, row, {{2, 16, plain, ends_node}}},
                               {0, 2 * row, row, {}}};

  Plan plan() const {
    SmallTables sender, receiver;
    for (const auto& terms : parts) sender.sum(terms);
    for (const auto& terms : totals) receiver.sum(terms);
    receiver.list({destinations[0], destinations[1], destinations[2]});
    SmallPlan plan({2, 2});
    plan[2].use_tables(sender.share());
    plan[0].use_tables(receiver.share());
    const RowSource sources[] = {{plan[2].input(0)}, {{3, Buffer::input, 0}}};
    const uint32_t part = plan[2].reduce_rows(0, 0, sources, {plan[2].scratch(0)}, 2, row);
    const RowSource all[] = {{plan[0].input(0)}, {{1, Buffer::input, 0}}, {plan[0].scratch(0), 4}};
    transfer(plan, part, all);
    return plan.take();
  }

  /// In two messages that cut a row, so that the parts have to fit together again.
  void transfer(SmallPlan& plan, uint32_t part, std::span<const RowSource> sources) const {
    After recvs;
    for (const uint32_t i : {0u, 1u}) {
      const uint64_t begin = i == 0 ? 0 : 11, bytes = i == 0 ? 11 : 5;
      plan[2].send(0, i, plan[2].scratch(begin), bytes, After{part});
      recvs.push_back(plan[0].recv(2, i, plan[0].scratch(begin), bytes));
    }
    if (!total_waits) recvs.pop_back();
    plan[0].reduce_rows(2, 0, sources, {plan[0].output(0), 0, 0}, 3, row, recvs);
  }

  ::testing::AssertionResult is_accepted() const { return accepted(plan(), transfers, expected); }
  ::testing::AssertionResult is_refused(std::initializer_list<std::string> parts_of_message) const {
    return refused(plan(), transfers, expected, parts_of_message);
  }
};

// --- Right plans

TEST(Sums, OverTwoNodes) {
  EXPECT_TRUE(TwoLevels().is_accepted());
}

TEST(Sums, MayBeMadeAtOnce) {
  // Rows that come from elsewhere are still terms of their own.
  SmallTables tables;
  tables.sum({{1, 0, 5, ends_node}, {0, 1, plain, ends_node}});
  SmallPlan plan({1, 1});
  plan[0].use_tables(tables.share());
  plan[1].send(0, 0, plan[1].input(24), row);
  const uint32_t recv = plan[0].recv(1, 0, plan[0].scratch(0), row);
  const RowSource sources[] = {{plan[0].input(0)}, {plan[0].scratch(0)}};
  plan[0].reduce_rows(2, 0, sources, {plan[0].output(0)}, 1, row, After{recv});
  EXPECT_TRUE(accepted(plan.take(), {}, {{0, 0, row, {{0, 8, 5, ends_node}, {1, 24, plain, ends_node}}}}));
}

TEST(Sums, MayGoOnThroughMovesAndCopies) {
  SmallTables tables;
  tables.sum({{0, 0, 0, ends_node}});
  tables.sum({{1, 0, 0, ends_node}});
  const uint32_t swapped = tables.list({1, 0});
  SmallPlan plan({2});
  plan[0].use_tables(tables.share());
  plan[1].use_tables(tables.share());
  const RowSource sources[] = {{plan[0].input(0)}};
  const uint32_t sums = plan[0].reduce_rows(0, 0, sources, {plan[0].scratch(0)}, 2, row);
  plan[0].post(0, 0, 1, After{sums});
  const uint32_t wait = plan[1].wait(0, 0, 0, 1);
  const uint32_t move =
      plan[1].move_rows(2, {{0, Buffer::scratch, 0}, 0, swapped}, {plan[1].scratch(0)}, 2, row, After{wait});
  plan[1].copy(2, plan[1].scratch(0), plan[1].output(0), 5, After{move});
  plan[1].copy(2, plan[1].scratch(5), plan[1].output(5), 11, After{move});
  EXPECT_TRUE(accepted(plan.take(), {},
                       {{1, 0, row, {{0, 8, 0, ends_node}}}, {1, row, row, {{0, 0, 0, ends_node}}}}));
}

TEST(Sums, AreRightWhereverTheExpectationStands) {
  TwoLevels levels;
  std::ranges::reverse(levels.expected);
  EXPECT_TRUE(levels.is_accepted());
}

// --- Wrong sums

TEST(WrongSums, AnotherRow) {
  TwoLevels levels;
  levels.totals[0][1].row = 0;
  EXPECT_TRUE(levels.is_refused(
      {"plan small: rank 0 step 2 (reduce_rows", "wrong data in bytes [8, 16) of the output of rank 0",
       "expected: bytes [0, 8) of the sum (0.input+0 weight=0 ends=rank + 1.input+8 weight=1 ends=rank,node",
       "they differ from term 1 on: expected 1.input+8 weight=1 ends=rank,node, found 1.input+0 weight=1"}));
}

TEST(WrongSums, AnotherRowOfAnotherNode) {
  TwoLevels levels;
  levels.parts[0][2].row = 1;
  EXPECT_TRUE(levels.is_refused({"of the output of rank 0", "they differ from term 4 on",
                                 "expected 3.input+16 weight=1", "found 3.input+8 weight=1"}));
}

TEST(WrongSums, AnotherOrder) {
  TwoLevels levels;
  std::swap(levels.parts[0][1].row, levels.parts[0][2].row);
  std::swap(levels.parts[0][1].weight, levels.parts[0][2].weight);
  EXPECT_TRUE(
      levels.is_refused({"they differ from term 3 on", "expected 3.input+0 weight=0, found 3.input+16"}));
}

TEST(WrongSums, NodesInAnotherOrder) {
  TwoLevels levels;
  levels.totals[0] = {{4, 2, plain, ends_node}, {0, 0, 0, ends_rank}, {1, 1, 1, ends_node}};
  EXPECT_TRUE(levels.is_refused({"they differ from term 0 on", "expected 0.input+0", "found 2.input+8"}));
}

TEST(WrongSums, AnotherWeight) {
  TwoLevels levels;
  levels.parts[0][0].weight = plain;
  EXPECT_TRUE(levels.is_refused(
      {"they differ from term 2 on", "expected 2.input+8 weight=3 ends=rank, found 2.input+8 ends=rank"}));
}

TEST(WrongSums, RankNotEnded) {
  TwoLevels levels;
  levels.totals[0][0].ends = goes_on;
  EXPECT_TRUE(levels.is_refused(
      {"they differ from term 0 on", "expected 0.input+0 weight=0 ends=rank, found 0.input+0 weight=0"}));
}

TEST(WrongSums, NodeNotEnded) {
  TwoLevels levels;
  levels.totals[0][1].ends = ends_rank;
  EXPECT_TRUE(levels.is_refused({"they differ from term 1 on", "expected 1.input+8 weight=1 ends=rank,node",
                                 "found 1.input+8 weight=1 ends=rank"}));
}

TEST(WrongSums, TermMissing) {
  TwoLevels levels;
  levels.totals[0].pop_back();
  EXPECT_TRUE(levels.is_refused({"they differ from term 2 on", "found nothing"}));
}

TEST(WrongSums, TermTooMany) {
  TwoLevels levels;
  levels.totals[2] = levels.totals[1];
  EXPECT_TRUE(levels.is_refused({"expected: bytes [0, 8) of the sum ()",
                                 "they differ from term 0 on: expected nothing, found 2.input+16"}));
}

TEST(WrongSums, AtAnotherPlaceInTheOutput) {
  TwoLevels levels;
  levels.destinations = {1, 0, 3};
  EXPECT_TRUE(levels.is_refused(
      {"bytes [16, 24) of the output of rank 0 are never written", "expected: bytes [0, 8) of the sum ()"}));
  levels.destinations = {1, 0, 2};
  levels.expected.pop_back();
  EXPECT_TRUE(
      levels.is_refused({"writes bytes [16, 24) of the output of rank 0, which nothing should write"}));
}

TEST(WrongSums, ThatBeginInTheMiddleOfARow) {
  SmallTables tables;
  tables.sum({{0, 0, 0, ends_node}});
  SmallPlan plan({1});
  plan[0].use_tables(tables.share());
  const RowSource sources[] = {{plan[0].input(0)}};
  const uint32_t sum = plan[0].reduce_rows(0, 0, sources, {plan[0].scratch(0)}, 1, row);
  plan[0].copy(2, plan[0].scratch(2), plan[0].output(0), row - 2, After{sum});
  EXPECT_TRUE(
      refused(plan.take(), {{0, 0, 0, 100, row}}, {{0, 0, row - 2, {{0, 0, 0, ends_node}}}},
              {"rank 0 step 1", "found: bytes [2, 8) of the sum", "the terms are the same, the bytes"}));
}

TEST(WrongSums, OutputRowWrittenTwice) {
  TwoLevels levels;
  Plan plan = levels.plan();
  plan.ranks[0].steps.push_back(plan.ranks[0].steps.back());
  EXPECT_TRUE(refused(plan, {}, levels.expected,
                      {"rank 0 step 3", "writes bytes [8, 16) of the output of rank 0 a second time"}));
}

TEST(WrongSums, RawDataWhereASumIsExpected) {
  TwoLevels levels;
  Plan plan = levels.plan();
  Step& step = plan.ranks[2].steps[0];
  step.kind = Kind::move_rows;
  step.source = {2, Buffer::input, 8};
  EXPECT_TRUE(
      refused(plan, {}, levels.expected,
              {"they differ from term 2 on", "expected 2.input+8 weight=3 ends=rank, found 2.input+8 ends"}));
  SmallPlan copied({1});
  copied[0].copy(0, copied[0].input(0), copied[0].output(0), row);
  EXPECT_TRUE(refused(copied.take(), {}, {{0, 0, row, {{0, 0, plain, ends_node}}}},
                      {"rank 0 step 0", "expected: bytes [0, 8) of the sum (0.input+0 ends=rank,node)",
                       "found: bytes [0, 8) of the input of rank 0"}));
}

TEST(WrongSums, ASumWhereRawDataIsExpected) {
  TwoLevels levels;
  levels.transfers.push_back({2, 16, 0, 0, row});
  std::erase_if(levels.expected, [](const RowSum& it) { return it.destination_offset == 0; });
  EXPECT_TRUE(levels.is_refused({"wrong data in bytes [0, 8) of the output of rank 0",
                                 "expected: bytes [16, 24) of the input of rank 2",
                                 "found: bytes [0, 8) of the sum (2.input+16 ends=rank,node)"}));
}

TEST(WrongSums, ReadBeforeTheyAreReceived) {
  TwoLevels levels;
  levels.total_waits = false;
  EXPECT_TRUE(
      levels.is_refused({"rank 0 step 2 (reduce_rows", "race: reads bytes [11, 16) of the scratch of rank 0",
                         "rank 0 step 1 (recv from=2 tag=1"}));
}

/// One row of scratch, read by a sum, then written again, which `waits` for the sum or not.
Plan overwritten(bool waits) {
  SmallTables tables;
  tables.sum({{0, 0, 0, ends_node}});
  SmallPlan plan({1});
  plan[0].use_tables(tables.share());
  const RowSource sources[] = {{plan[0].scratch(0)}};
  const uint32_t fill = plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), row);
  const uint32_t sum = plan[0].reduce_rows(1, 0, sources, {plan[0].output(0)}, 1, row, After{fill});
  const uint32_t again =
      plan[0].copy(1, plan[0].input(row), plan[0].scratch(0), row, After{waits ? sum : fill});
  plan[0].copy(2, plan[0].scratch(0), plan[0].output(row), row, After{again});
  return plan.take();
}

TEST(WrongSums, TermOverwrittenWhileItIsRead) {
  const std::vector<RowSum> expected{{0, 0, row, {{0, 0, 0, ends_node}}}};
  const std::vector<Transfer> second{{0, row, 0, row, row}};
  EXPECT_TRUE(accepted(overwritten(true), second, expected));
  EXPECT_TRUE(refused(overwritten(false), second, expected,
                      {"rank 0 step 2", "race: overwrites bytes [0, 8) of the scratch of rank 0",
                       "rank 0 step 1 (reduce_rows"}));
}

// --- Sums as terms

/// Makes a sum of rows of its input, at byte 4 of scratch among raw data, then one that reads the input
/// (source 0) or scratch from a byte on (source 1).
Plan chain(const std::vector<RowTerm>& first, const std::vector<RowTerm>& second, uint64_t read_from = 4) {
  SmallTables tables;
  tables.sum(first);
  tables.sum(second);
  SmallPlan plan({1});
  plan[0].use_tables(tables.share());
  const RowSource inputs[] = {{plan[0].input(0)}};
  const RowSource sources[] = {{plan[0].input(0)}, {plan[0].scratch(read_from)}};
  const uint32_t raw = plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), 4 + row + row);
  const uint32_t sum = plan[0].reduce_rows(0, 0, inputs, {plan[0].scratch(4)}, 1, row, After{raw});
  plan[0].reduce_rows(2, 1, sources, {plan[0].output(0)}, 1, row, After{sum});
  plan[0].copy(2, plan[0].input(0), plan[0].output(100), 4 + row + row);
  return plan.take();
}

const std::vector<Transfer> copied{{0, 0, 0, 100, 4 + row + row}};

TEST(SumOfSums, AddsTheTermsOfOneNode) {
  const Plan plan =
      chain({{0, 0, 1, ends_rank}, {1, 0, 2, ends_node}}, {{1, 0, 3, ends_node}, {0, 1, plain, ends_node}});
  EXPECT_TRUE(accepted(plan, copied,
                       {{0, 0, row, {{0, 8, 3, ends_node}, {0, 0, 1, ends_rank}, {0, 8, 2, ends_node}}}}));
}

TEST(SumOfSums, OfNothingAddsNothing) {
  EXPECT_TRUE(accepted(chain({}, {{0, 1, plain, ends_node}}), copied, {{0, 0, row, {}}}));
  EXPECT_TRUE(accepted(chain({}, {{1, 0, 2, ends_rank}, {0, 1, plain, ends_node}, {0, 0, 3, ends_node}}),
                       copied, {{0, 0, row, {{0, 8, 2, ends_node}, {0, 0, 3, ends_node}}}}));
}

TEST(SumOfSums, NotWeighted) {
  EXPECT_TRUE(
      refused(chain({{0, 0, 1, ends_node}}, {{0, 1, 7, ends_node}}), copied,
              {"rank 0 step 2", "sum 1 reads row 0 of source 1", "with weight 7; sums are not weighted"}));
}

TEST(SumOfSums, OfOneRankGoesOnInItsNode) {
  EXPECT_TRUE(accepted(chain({{0, 0, 1, ends_node}}, {{0, 1, plain, ends_rank}, {1, 0, 0, ends_node}}),
                       copied, {{0, 0, row, {{0, 0, 1, ends_rank}, {0, 8, 0, ends_node}}}}));
}

TEST(SumOfSums, EndsARank) {
  EXPECT_TRUE(refused(chain({{0, 0, 1, ends_node}}, {{0, 1, plain, RowTerm::nothing}, {1, 0, 0, ends_node}}),
                      copied,
                      {"rank 0 step 2", "sum 1 reads row 0 of source 1", "does not end a rank there"}));
}

TEST(SumOfSums, OfTwoRanksEndsTheNode) {
  EXPECT_TRUE(refused(
      chain({{0, 0, 1, ends_rank}, {1, 0, 2, ends_node}}, {{0, 1, plain, ends_rank}, {1, 0, 0, ends_node}}),
      copied, {"rank 0 step 2", "sum 1 reads row 0 of source 1", "a sum over 2 ranks already"}));
}

TEST(SumOfSums, NotOfTwoNodes) {
  EXPECT_TRUE(refused(chain({{0, 0, 1, ends_node}, {1, 0, 1, ends_node}}, {{0, 1, plain, ends_node}}), copied,
                      {"rank 0 step 2", "sum 1 reads row 0 of source 1", "a sum over 2 nodes already"}));
}

TEST(SumOfSums, NotPartOfARow) {
  EXPECT_TRUE(refused(
      chain({{0, 0, 1, ends_node}}, {{0, 1, plain, ends_node}}, 6), copied,
      {"rank 0 step 2", "bytes [6, 14) of the scratch of rank 0",
       "no row: it begins with bytes [2, 8) of the sum (0.input+0 weight=1 ends=rank,node), then come "
       "bytes [12, 14) of the input of rank 0"}));
}

TEST(SumOfSums, NotRowsOfAnotherLength) {
  SmallTables tables;
  tables.sum({{0, 0, 0, ends_node}});
  SmallPlan plan({1});
  plan[0].use_tables(tables.share());
  const RowSource inputs[] = {{plan[0].input(0)}}, sums[] = {{plan[0].scratch(0)}};
  const uint32_t sum = plan[0].reduce_rows(0, 0, inputs, {plan[0].scratch(0)}, 1, row);
  plan[0].reduce_rows(2, 0, sums, {plan[0].output(0)}, 1, row / 2, After{sum});
  EXPECT_TRUE(
      refused(plan.take(), copied,
              {"rank 0 step 1", "which is not the whole row of a sum: it holds bytes [0, 4) of the sum"}));
}

TEST(SumOfSums, NeighboursDoNotBecomeOneRow) {
  // Two sums of half a row each lie side by side where a whole row is read.
  SmallTables tables;
  tables.sum({{0, 0, plain, ends_node}});
  tables.sum({{1, 0, plain, ends_node}});
  SmallPlan plan({1});
  plan[0].use_tables(tables.share());
  const RowSource inputs[] = {{plan[0].input(0)}}, sums[] = {{plan[0].scratch(0)}};
  const uint32_t halves = plan[0].reduce_rows(0, 0, inputs, {plan[0].scratch(0)}, 2, row / 2);
  plan[0].reduce_rows(2, 0, sums, {plan[0].output(0)}, 1, row, After{halves});
  EXPECT_TRUE(
      refused(plan.take(), copied, {"rank 0 step 1", "no row: it begins with bytes [0, 4) of the sum"}));
}

// --- What is expected

TEST(ExpectedSums, ContradictingOrOutOfRange) {
  const TwoLevels levels;
  const Plan plan = levels.plan();
  auto sums = levels.expected;
  sums.push_back({0, 12, 4, {}});
  EXPECT_TRUE(refused(plan, {}, sums, {"overlap in the output of rank 0 at byte 12"}));
  EXPECT_TRUE(
      refused(plan, {{2, 0, 0, 4, 4}}, levels.expected, {"overlap in the output of rank 0 at byte 4"}));
  EXPECT_TRUE(refused(plan, {}, {{4, 0, 8, {}}}, {"an expected sum names rank 4, but there are 4 ranks"}));
  EXPECT_TRUE(refused(plan, {}, {{0, 0, 8, {{-2, 0, 0, 3}}}}, {"an expected sum names rank -2"}));
  EXPECT_TRUE(refused(plan, {}, {{0, UINT64_MAX, 8, {}}}, {"an expected sum of 8 bytes", "passes 2^64"}));
  EXPECT_TRUE(
      refused(plan, {}, {{0, 0, 8, {{0, UINT64_MAX, 0, 3}}}}, {"an expected sum of 8 bytes", "passes 2^64"}));
  EXPECT_EQ(verify(plan, {}, std::vector<RowSum>{{4, 0, 8, {}}}, {}).code(), Code::invalid_argument);
}

TEST(ExpectedSums, OfNoBytesAreIgnored) {
  TwoLevels levels;
  levels.expected.push_back({0, row, 0, {{0, 1000, 0, ends_node}}});
  EXPECT_TRUE(levels.is_accepted());
}

}  // namespace
}  // namespace epccl::plan::testing
