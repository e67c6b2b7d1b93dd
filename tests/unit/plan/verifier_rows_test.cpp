// The verifier: moved rows, and the form of steps that name rows.
#include <gtest/gtest.h>

#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

constexpr uint64_t row = 8;

// --- Right plans

TEST(Rows, GatheredInAnyOrderAndTwice) {
  SmallTables tables;
  const uint32_t list = tables.list({3, 0, 1, 3});
  SmallPlan plan({1});
  plan[0].use_tables(tables.share());
  plan[0].move_rows(0, {plan[0].input(0), 0, list}, {plan[0].output(0)}, 4, row);
  EXPECT_TRUE(accepted(plan.take(), {{0, 24, 0, 0, 8}, {0, 0, 0, 8, 16}, {0, 24, 0, 24, 8}}));
}

TEST(Rows, ScatteredToThePeersOutput) {
  SmallTables tables;
  const uint32_t list = tables.list({12, 10, 13});
  SmallPlan plan({2});
  plan[0].use_tables(tables.share());
  plan[0].move_rows(0, {plan[0].input(8)}, {{1, Buffer::output, 100}, 10, list}, 3, row);
  EXPECT_TRUE(accepted(plan.take(), {{0, 8, 1, 116, 8}, {0, 16, 1, 100, 8}, {0, 24, 1, 124, 8}}));
}

/// Rank 0 gathers rows into scratch and sends them to rank 1 of another node, which scatters them.
struct TwoHops {
  std::vector<uint32_t> gathered{5, 1, 2}, scattered{2, 0, 1};
  bool send_waits = true;

  Plan plan() const {
    SmallTables at_source, at_destination;
    const uint32_t from = at_source.list({gathered[0], gathered[1], gathered[2]});
    const uint32_t to = at_destination.list({scattered[0], scattered[1], scattered[2]});
    SmallPlan plan({1, 1});
    plan[0].use_tables(at_source.share());
    plan[1].use_tables(at_destination.share());
    const uint32_t gather = plan[0].move_rows(0, {plan[0].input(0), 0, from}, {plan[0].scratch(0)}, 3, row);
    plan[0].send(1, 0, plan[0].scratch(0), 3 * row, After{send_waits ? gather : Builder::none});
    const uint32_t recv = plan[1].recv(0, 0, plan[1].scratch(0), 3 * row);
    plan[1].move_rows(2, {plan[1].scratch(0)}, {plan[1].output(0), 0, to}, 3, row, After{recv});
    return plan.take();
  }
  std::vector<Transfer> expected{{0, 40, 1, 16, 8}, {0, 8, 1, 0, 8}, {0, 16, 1, 8, 8}};
};

TEST(Rows, GatheredSentAndScattered) {
  const TwoHops hops;
  EXPECT_TRUE(accepted(hops.plan(), hops.expected));
}

TEST(Rows, MayComeInPartsFromSeveralSteps) {
  // Two messages of one and a half rows each.
  SmallTables tables;
  const uint32_t list = tables.list({2, 1, 0});
  SmallPlan plan({1, 1});
  plan[1].use_tables(tables.share());
  After recvs;
  for (const uint32_t part : {0u, 1u}) {
    plan[0].send(1, part, plan[0].input(uint64_t{12} * part), 12);
    recvs.push_back(plan[1].recv(0, part, plan[1].scratch(uint64_t{12} * part), 12));
  }
  plan[1].move_rows(2, {plan[1].scratch(0), 0, list}, {plan[1].output(0)}, 3, row, recvs);
  EXPECT_TRUE(accepted(plan.take(), {{0, 16, 1, 0, 8}, {0, 8, 1, 8, 8}, {0, 0, 1, 16, 8}}));
}

// --- Wrong data

TEST(WrongRows, AnotherRowOfTheInput) {
  TwoHops hops;
  hops.gathered[1] = 4;
  EXPECT_TRUE(refused(
      hops.plan(), hops.expected,
      {"rank 1 step 1 (move_rows", "wrong data in bytes [0, 8) of the output of rank 1",
       "expected: bytes [8, 16) of the input of rank 0", "found: bytes [32, 40) of the input of rank 0"}));
}

TEST(WrongRows, ToAnotherRowOfTheOutput) {
  TwoHops hops;
  std::swap(hops.scattered[0], hops.scattered[1]);
  EXPECT_TRUE(refused(hops.plan(), hops.expected,
                      {"rank 1 step 1 (move_rows", "wrong data in bytes [0, 8) of the output of rank 1"}));
}

TEST(WrongRows, OutputRowWrittenTwice) {
  SmallTables tables;
  const uint32_t first = tables.list({0, 2}), second = tables.list({3, 2});
  SmallPlan plan({2});
  for (const int rank : {0, 1}) {
    plan[rank].use_tables(tables.share());
    plan[rank].move_rows(0, {plan[rank].input(0)}, {{0, Buffer::output, 0}, 0, rank == 0 ? first : second}, 2,
                         row);
  }
  EXPECT_TRUE(refused(plan.take(), {{0, 0, 0, 0, 8}, {0, 8, 0, 16, 8}, {1, 0, 0, 24, 8}, {1, 8, 0, 32, 8}},
                      {"rank 1 step 0", "writes bytes [16, 24) of the output of rank 0 a second time",
                       "rank 0 step 0 (move_rows"}));
}

TEST(WrongRows, ReadBeforeTheyAreWritten) {
  TwoHops hops;
  hops.send_waits = false;
  EXPECT_TRUE(refused(hops.plan(), hops.expected,
                      {"rank 0 step 1 (send", "race: reads bytes [0, 8) of the scratch of rank 0",
                       "rank 0 step 0 (move_rows 0.input+0[list 0] -> 0.scratch+0"}));
}

/// Rank 0 moves rows 0 and 2 of its scratch to rows 3 and `to`.
Plan move_within_scratch(uint32_t to) {
  SmallTables tables;
  const uint32_t from = tables.list({0, 2}), into = tables.list({3, to});
  SmallPlan plan({1});
  plan[0].use_tables(tables.share());
  const uint32_t fill = plan[0].copy(0, plan[0].input(0), plan[0].scratch(0), 3 * row);
  const uint32_t move =
      plan[0].move_rows(0, {plan[0].scratch(0), 0, from}, {plan[0].scratch(0), 0, into}, 2, row, After{fill});
  plan[0].copy(0, plan[0].scratch(24), plan[0].output(0), row, After{move});
  plan[0].copy(0, plan[0].input(0), plan[0].output(8), 3 * row);
  return plan.take();
}

TEST(WrongRows, ThatOverlapThoseTheyComeFrom) {
  EXPECT_TRUE(accepted(move_within_scratch(1), {{0, 0, 0, 0, 8}, {0, 0, 0, 8, 24}}));
  EXPECT_TRUE(refused(move_within_scratch(2), {{0, 0, 0, 0, 8}, {0, 0, 0, 8, 24}},
                      {"rank 0 step 1", "reads and writes bytes [16, 24) of the scratch of rank 0"}));
}

TEST(WrongRows, ThatNobodyWrites) {
  SmallTables tables;
  const uint32_t list = tables.list({0, 2});
  SmallPlan plan({1});
  plan[0].use_tables(tables.share());
  const uint32_t fill = plan[0].move_rows(0, {plan[0].input(0)}, {plan[0].scratch(0), 0, list}, 2, row);
  plan[0].move_rows(2, {plan[0].scratch(0)}, {plan[0].output(0)}, 2, row, After{fill});
  EXPECT_TRUE(
      refused(plan.take(), {{0, 0, 0, 0, 16}},
              {"rank 0 step 1", "reads bytes [8, 16) of the scratch of rank 0, which no other step"}));
}

TEST(WrongRows, ThatAreWrittenLater) {
  SmallTables tables;
  const uint32_t list = tables.list({7, 3});
  SmallPlan plan({1});
  plan[0].use_tables(tables.share());
  plan[0].copy(0, plan[0].scratch(24), plan[0].output(0), row);
  plan[0].move_rows(0, {plan[0].input(0)}, {plan[0].scratch(0), 0, list}, 2, row);
  EXPECT_TRUE(refused(plan.take(), {{0, 8, 0, 0, 8}},
                      {"rank 0 step 0", "race: reads bytes [24, 32) of the scratch of rank 0",
                       "which rank 0 step 1 (move_rows"}));
}

// --- Form

/// A gather of two rows and a sum of two, which a test breaks.
class RowsForm : public ::testing::Test {
 protected:
  RowsForm() {
    SmallTables tables;
    tables.list({1, 4});
    tables.list({2, 0});
    tables.sum({{0, 0, 2, goes_on}, {1, 1, plain, ends_node}});
    SmallPlan plan({2, 1});
    plan[0].use_tables(tables.share());
    plan[0].move_rows(0, {plan[0].input(0), 1, 0}, {plan[0].scratch(0), 0, 2}, 2, row);
    const RowSource sources[] = {{plan[0].input(0)}, {{1, Buffer::input, 0}}};
    plan[0].reduce_rows(0, 0, sources, {plan[0].output(0)}, 1, row);
    plan[1].copy(0, {0, Buffer::input, 24}, plan[1].output(0), row);
    plan_ = plan.take();
    tables_ = *plan_.ranks[0].tables;
  }

  Step& move() { return plan_.ranks[0].steps[0]; }
  Step& reduce() { return plan_.ranks[0].steps[1]; }

  ::testing::AssertionResult broken(std::initializer_list<std::string> parts) {
    plan_.ranks[0].tables = std::make_shared<const RowTables>(tables_);
    return refused(plan_, expected_, {sum_}, parts);
  }

  Plan plan_;
  RowTables tables_;
  // So the inputs have rows 0 to 3 of rank 0, rows 0 and 1 of rank 1.
  RowSum sum_{0, 0, row, {{0, 0, 2, goes_on}, {1, 8, plain, ends_node}}};
  std::vector<Transfer> expected_{{0, 24, 1, 0, row}};
};

TEST_F(RowsForm, IsRight) {
  EXPECT_TRUE(accepted(plan_, expected_, {sum_}));
}

TEST_F(RowsForm, WithoutTables) {
  plan_.ranks[0].tables = nullptr;
  EXPECT_TRUE(
      refused(plan_, expected_, {sum_}, {"rank 0 step 0", "reads listed rows, but the rank has no tables"}));
  move().source_list = Step::no_list;
  EXPECT_TRUE(
      refused(plan_, expected_, {sum_}, {"rank 0 step 0", "writes listed rows, but the rank has no tables"}));
  move().destination_list = Step::no_list;
  EXPECT_TRUE(refused(plan_, expected_, {sum_}, {"rank 0 step 1", "makes sums, but the rank has no tables"}));
}

TEST_F(RowsForm, OfNothing) {
  move().bytes = 0;
  EXPECT_TRUE(broken({"rank 0 step 0", "moves nothing: 2 rows of 0 bytes"}));
  move().bytes = row;
  reduce().rows = 0;
  EXPECT_TRUE(broken({"rank 0 step 1", "reduces nothing: 0 rows of 8 bytes"}));
}

TEST_F(RowsForm, ListsBeyondTheTables) {
  move().source_list = 3;
  EXPECT_TRUE(broken({"rank 0 step 0", "reads the rows listed at [3, 5), but the tables list only 4"}));
  move().source_list = 0;
  move().destination_list = UINT32_MAX - 1;
  EXPECT_TRUE(broken({"rank 0 step 0", "writes the rows listed at [4294967294, 4294967296)"}));
}

TEST_F(RowsForm, RowsBeforeTheFirst) {
  move().source_first_row = 2;
  EXPECT_TRUE(broken({"rank 0 step 0", "reads row 1 of a region that begins with row 2"}));
  move().source_first_row = 1;
  plan_.ranks[0].row_sources[1].first_row = 2;
  EXPECT_TRUE(broken({"rank 0 step 1", "reads row 1 of a region that begins with row 2"}));
}

TEST_F(RowsForm, RowsOutsideTheirBuffer) {
  tables_.rows[1] = 5;
  EXPECT_TRUE(broken({"rank 0 step 0", "reads row 5, bytes [32, 40) of the input of rank 0, which has 32"}));
  tables_.rows[1] = 4;
  plan_.ranks[0].scratch_bytes = 23;
  EXPECT_TRUE(
      broken({"rank 0 step 0", "writes row 2, bytes [16, 24) of the scratch of rank 0, which has 23"}));
  move().destination.offset = UINT64_MAX - 20;
  EXPECT_TRUE(broken({"rank 0 step 0", "writes bytes beyond 2^64"}));
  move().destination = {1, Buffer::scratch, 0};
  move().destination_list = Step::no_list;
  EXPECT_TRUE(broken({"rank 0 step 0", "writes bytes [0, 16) of the scratch of rank 1, which has 0 bytes"}));
  move().destination = {1, Buffer::output, 0};
  tables_.terms[1].row = 2;
  EXPECT_TRUE(broken({"rank 0 step 1", "reads row 2, bytes [16, 24) of the input of rank 1, which has 16"}));
}

TEST_F(RowsForm, RanksThatCannotBeReached) {
  move().source.rank = 2;
  EXPECT_TRUE(broken({"rank 0 step 0", "reads the input of rank 2, which is on node 1, not on node 0"}));
  move().source.rank = 0;
  move().destination.rank = 3;
  EXPECT_TRUE(broken({"rank 0 step 0", "writes rank 3, but there are 3 ranks"}));
  move().destination.rank = 0;
  plan_.ranks[0].row_sources[0].at.rank = 2;
  EXPECT_TRUE(broken({"rank 0 step 1", "reads the input of rank 2, which is on node 1, not on node 0"}));
}

TEST_F(RowsForm, InputsAreReadOnly) {
  move().destination.buffer = Buffer::input;
  EXPECT_TRUE(broken({"rank 0 step 0", "writes the input of rank 0, which is read-only"}));
  move().destination.buffer = Buffer::scratch;
  reduce().destination = {1, Buffer::input, 0};
  EXPECT_TRUE(broken({"rank 0 step 1", "writes the input of rank 1, which is read-only"}));
}

TEST_F(RowsForm, OnlyMovesToTheOutputOfAPeerAreLeftOut) {
  move().unless_fetched = true;
  for (const Location& to : {Location{0, Buffer::output, 0}, Location{1, Buffer::scratch, 0}}) {
    move().destination = to;
    EXPECT_TRUE(
        broken({"rank 0 step 0", "is left out where it is fetched, but moves no rows to the output"}));
  }
  move().destination = {2, Buffer::output, 0};
  EXPECT_TRUE(broken({"rank 0 step 0", "writes the output of rank 2, which is on node 1, not on node 0"}));
  move().destination.rank = 3;
  EXPECT_TRUE(broken({"rank 0 step 0", "writes rank 3, but there are 3 ranks"}));
  move().unless_fetched = false;
  move().destination = {0, Buffer::scratch, 0};
  plan_.ranks[1].steps[0].destination.rank = 0;
  plan_.ranks[1].steps[0].unless_fetched = true;
  EXPECT_TRUE(broken({"rank 1 step 0 (copy", "is left out where it is fetched, but moves no rows"}));
}

TEST_F(RowsForm, DestinationRowsDiffer) {
  tables_.rows[3] = 2;
  EXPECT_TRUE(broken({"rank 0 step 0", "writes row 2 twice"}));
}

TEST_F(RowsForm, SumsBeyondTheTables) {
  reduce().first_sum = 1;
  EXPECT_TRUE(broken({"rank 0 step 1", "makes the sums [1, 2), but the tables have only 1"}));
  reduce().first_sum = 0;
  tables_.sum_begin[1] = 3;
  EXPECT_TRUE(broken({"rank 0 step 1", "makes sum 0 of the terms [0, 3), but the tables have only 2"}));
  tables_.sum_begin = {2, 1};
  EXPECT_TRUE(broken({"rank 0 step 1", "makes sum 0 of the terms [2, 1)"}));
  tables_.sum_begin.clear();
  EXPECT_TRUE(broken({"rank 0 step 1", "makes the sums [0, 1), but the tables have only 0"}));
}

TEST_F(RowsForm, SourcesBeyondTheLists) {
  reduce().first_source = 1;
  EXPECT_TRUE(broken({"rank 0 step 1", "reads the sources [1, 3), but the rank lists only 2"}));
  reduce().first_source = 0;
  reduce().source_count = 1;
  EXPECT_TRUE(broken({"rank 0 step 1", "makes sum 0, whose term 1 reads source 1, but there are 1 sources"}));
}

TEST_F(RowsForm, EndsOfRanksAndNodes) {
  tables_.terms[1].ends = ends_rank;
  EXPECT_TRUE(broken({"rank 0 step 1", "makes sum 0, whose last term does not end its rank and its node"}));
  tables_.terms[1].ends = ends_node;
  tables_.terms[0].ends = RowTerm::node_sum;
  EXPECT_TRUE(broken({"rank 0 step 1", "makes sum 0, whose term 0 ends a node, but not its rank"}));
  tables_.terms[0].ends = 4;
  EXPECT_TRUE(broken({"rank 0 step 1", "makes sum 0, whose term 0 ends the unknown 4"}));
}

}  // namespace
}  // namespace epccl::plan::testing
