// The Builder: what it appends, what it merges, what it leaves out.
#include <gtest/gtest.h>

#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

TEST(Builder, ReturnsStepIndicesAndKeepsDependencies) {
  Builder builder(3);
  const uint32_t recv = builder.recv(5, 7, builder.scratch(16), 32);
  const uint32_t post = builder.post(2, 4, 9, After{recv});
  const uint32_t send = builder.send(6, 1, builder.scratch(0), 48, After{recv, Builder::none, post});
  EXPECT_EQ(recv, 0u);
  EXPECT_EQ(post, 1u);
  EXPECT_EQ(send, 2u);
  const RankPlan plan = std::move(builder).take();
  EXPECT_EQ(plan.rank, 3);
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_TRUE(plan.dependencies_of(plan.steps[0]).empty());
  const auto after = plan.dependencies_of(plan.steps[2]);
  EXPECT_EQ(After(after.begin(), after.end()), (After{0, 1})) << "`none` means nothing as a dependency";
  EXPECT_EQ(plan.scratch_bytes, 48u);
}

TEST(Builder, BufferSizesAreWhatTheRankTouchesOfItsOwn) {
  Builder builder(0);
  builder.copy(0, builder.input(100), builder.output(8), 10);
  builder.copy(0, {1, Buffer::scratch, 5000}, builder.scratch(20), 4);
  const RankPlan plan = std::move(builder).take();
  EXPECT_EQ(plan.input_bytes, 110u);
  EXPECT_EQ(plan.output_bytes, 18u);
  EXPECT_EQ(plan.scratch_bytes, 24u);
}

TEST(Builder, DropsCopiesOfNothing) {
  Builder builder(0);
  EXPECT_EQ(builder.copy(0, builder.input(0), builder.output(0), 0), Builder::none);
  EXPECT_EQ(builder.size(), 0u);
}

TEST(Builder, MergesRowsAtConstantDistances) {
  Builder builder(0);
  for (uint64_t row = 0; row < 4; ++row)
    EXPECT_EQ(builder.copy(0, builder.input(64 * row), builder.scratch(8 + 16 * row), 8), 0u);
  const RankPlan plan = std::move(builder).take();
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.steps[0].rows, 4u);
  EXPECT_EQ(plan.steps[0].bytes, 8u);
  EXPECT_EQ(plan.steps[0].source_stride, 64u);
  EXPECT_EQ(plan.steps[0].destination_stride, 16u);
  EXPECT_EQ(plan.steps[0].total_bytes(), 32u);
  EXPECT_EQ(plan.input_bytes, 200u);
  EXPECT_EQ(plan.scratch_bytes, 64u);
}

TEST(Builder, MergesWhatContinuesOnBothSides) {
  Builder builder(0);
  builder.copy(0, builder.input(0), builder.scratch(100), 8);
  builder.copy(0, builder.input(8), builder.scratch(108), 3);
  // Then the whole is a row.
  builder.copy(0, builder.input(20), builder.scratch(111), 11);
  const RankPlan plan = std::move(builder).take();
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.steps[0].bytes, 11u);
  EXPECT_EQ(plan.steps[0].rows, 2u);
  EXPECT_EQ(plan.steps[0].source_stride, 20u);
  EXPECT_EQ(plan.steps[0].destination_stride, 11u);
}

/// The second of two copies, which must become a step of its own.
struct Unmergeable {
  const char* why;
  int stage;
  Location source, destination;
  uint64_t bytes;
  After after;
};

TEST(Builder, DoesNotMergeWhatIsNotARow) {
  const Unmergeable cases[] = {
      {"other stage", 2, {0, Buffer::input, 8}, {0, Buffer::output, 8}, 8, {0}},
      {"other size", 0, {0, Buffer::input, 16}, {0, Buffer::output, 8}, 4, {0}},
      {"other source buffer", 0, {0, Buffer::scratch, 8}, {0, Buffer::output, 8}, 8, {0}},
      {"other source rank", 0, {1, Buffer::input, 8}, {0, Buffer::output, 8}, 8, {0}},
      {"other destination buffer", 0, {0, Buffer::input, 8}, {0, Buffer::scratch, 8}, 8, {0}},
      {"other dependencies", 0, {0, Buffer::input, 8}, {0, Buffer::output, 8}, 8, {}},
      {"source overlaps", 0, {0, Buffer::input, 4}, {0, Buffer::output, 8}, 8, {0}},
      {"destination goes back", 0, {0, Buffer::input, 8}, {0, Buffer::output, 0}, 8, {0}},
  };
  for (const Unmergeable& it : cases) {
    Builder builder(0);
    const uint32_t first = builder.post(0, 0, 1);
    builder.copy(0, builder.input(0), builder.output(0), 8, After{first});
    builder.copy(it.stage, it.source, it.destination, it.bytes, it.after);
    EXPECT_EQ(builder.size(), 3u) << it.why;
  }
}

TEST(Builder, DoesNotMergeAThirdRowAtAnotherDistance) {
  Builder builder(0);
  builder.copy(0, builder.input(0), builder.output(0), 8);
  builder.copy(0, builder.input(16), builder.output(8), 8);
  builder.copy(0, builder.input(40), builder.output(16), 8);
  EXPECT_EQ(builder.size(), 2u);
}

TEST(Builder, DoesNotMergeAcrossAnotherStep) {
  Builder builder(0);
  builder.copy(0, builder.input(0), builder.output(0), 8);
  builder.post(0, 0, 1);
  builder.copy(0, builder.input(8), builder.output(8), 8);
  EXPECT_EQ(builder.size(), 3u);
}

TEST(Builder, MergedRowsMoveTheSameBytes) {
  SmallPlan plan({1});
  std::vector<Transfer> expected;
  for (uint64_t row = 0; row < 5; ++row) {
    plan[0].copy(0, plan[0].input(24 * row), plan[0].output(10 * row), 10);
    expected.push_back({0, 24 * row, 0, 10 * row, 10});
  }
  ASSERT_EQ(plan[0].size(), 1u);
  EXPECT_TRUE(accepted(plan.take(), expected));
}

}  // namespace
}  // namespace epccl::plan::testing
