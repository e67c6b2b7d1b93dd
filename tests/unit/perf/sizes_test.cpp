#include "perf/src/sizes.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace epccl::perf {
namespace {

using Sizes = std::vector<uint64_t>;

TEST(SweepSizes, MultipliesByAFactorUpToTheLastSize) {
  EXPECT_EQ(sweep_sizes({8, 64, 1, 2}), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sweep_sizes({8, 65, 1, 3}), (Sizes{8, 24}));
}

TEST(SweepSizes, AddsAStepWithoutAFactor) {
  EXPECT_EQ(sweep_sizes({8, 30, 10, 0}), (Sizes{8, 18, 28}));
}

TEST(SweepSizes, IsOneSizeWhereFirstAndLastAreEqual) {
  EXPECT_EQ(sweep_sizes({32, 32, 1, 2}), (Sizes{32}));
}

TEST(SweepSizes, IsEmptyWhereFirstIsMoreThanLast) {
  EXPECT_EQ(sweep_sizes({33, 32, 1, 2}), Sizes{});
}

TEST(SweepSizes, EndsThoughZeroNeverGrowsByAFactor) {
  EXPECT_EQ(sweep_sizes({0, 32, 1, 2}), (Sizes{0}));
}

TEST(SweepSizes, EndsWhereTheNextSizeWouldOverflow) {
  constexpr uint64_t huge = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(sweep_sizes({huge - 1, huge, 1, 4}), (Sizes{huge - 1}));
  EXPECT_EQ(sweep_sizes({huge - 1, huge, 7, 0}), (Sizes{huge - 1}));
}

TEST(PairCount, DividesBytesPerRankByRanksAndDatatype) {
  EXPECT_EQ(pair_count(1024, false, 8, 4), 32u);
  EXPECT_EQ(pair_count(1023, false, 8, 4), 31u);
  EXPECT_EQ(pair_count(8, false, 8, 4), 0u);
}

TEST(PairCount, DividesBytesPerPairByTheDatatypeOnly) {
  EXPECT_EQ(pair_count(1024, true, 8, 4), 256u);
}

}  // namespace
}  // namespace epccl::perf
