#include "perf/src/statistics.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace epccl::perf {
namespace {

TEST(OverRanks, CombinesTheRanksTimesOfEachIteration) {
  const std::vector<double> times = {1, 5, 2, /* rank 1 */ 3, 4, 8};
  EXPECT_EQ(over_ranks(times, 2, Average::maximum), (std::vector<double>{3, 5, 8}));
  EXPECT_EQ(over_ranks(times, 2, Average::minimum), (std::vector<double>{1, 4, 2}));
  EXPECT_EQ(over_ranks(times, 2, Average::mean), (std::vector<double>{2, 4.5, 5}));
  EXPECT_EQ(over_ranks(times, 2, Average::rank0), (std::vector<double>{1, 5, 2}));
}

TEST(Summarize, GivesMedianNearestRankPercentileAndMinimum) {
  std::vector<double> times(200);
  std::iota(times.rbegin(), times.rend(), 1);  // 200 ... 1
  const Summary summary = summarize(times);
  EXPECT_EQ(summary.median, 100.5);
  EXPECT_EQ(summary.p95, 190);
  EXPECT_EQ(summary.p99, 198);
  EXPECT_EQ(summary.minimum, 1);
}

TEST(Summarize, TakesTheLargestAsP99BelowAHundredIterations) {
  EXPECT_EQ(summarize({3, 1, 2}).p99, 3);
  EXPECT_EQ(summarize({7}).p99, 7);
  EXPECT_EQ(summarize({7}).median, 7);
}

TEST(Summarize, TakesTheMeanOfTheTwoInTheMiddleOfAnEvenNumber) {
  EXPECT_EQ(summarize({9, 1}).median, 5);
  EXPECT_EQ(summarize({100, 2, 1, 4}).median, 3);
  EXPECT_EQ(summarize({100, 2, 1}).median, 2);
}

TEST(Summarize, IsZeroForNothing) {
  EXPECT_EQ(summarize({}).median, 0);
}

TEST(IterationsWithin, FillTheBudgetBetweenSevenAndFourHundred) {
  EXPECT_EQ(iterations_within(1.0, 0.01), 99);  // what 1 ns of reserve leaves
  EXPECT_EQ(iterations_within(1.0, 10), 7);
  EXPECT_EQ(iterations_within(1.0, 1e-6), 400);
  EXPECT_EQ(iterations_within(1.0, 0), 400);
}

}  // namespace
}  // namespace epccl::perf
