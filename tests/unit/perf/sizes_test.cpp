#include "perf/src/sizes.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace epccl::perf {
namespace {

using Sizes = std::vector<uint64_t>;

TEST(ParseSize, TakesFractionsOfAUnitThatAreWholeBytes) {
  EXPECT_EQ(*parse_size("64"), 64u);
  EXPECT_EQ(*parse_size("4K"), 4096u);
  EXPECT_EQ(*parse_size("1.5K"), 1536u);
  EXPECT_EQ(*parse_size("0.25MiB"), 256u << 10);
  EXPECT_EQ(*parse_size("8.0"), 8u);
  EXPECT_EQ(*parse_size("1.5 T"), uint64_t{3} << 39);
  for (const char* wrong : {"1.5", "1.3K", "-0.5K", "1.5Q", "1.5.5K", ".", "1.e3", "1e9.5T", "99999999.5T"})
    EXPECT_FALSE(parse_size(wrong).ok()) << wrong;
}

TEST(SweepSizes, MultipliesByAFactorUpToTheLastSize) {
  EXPECT_EQ(sweep_sizes({8, 64, 1, 2}, 4), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sweep_sizes({8, 65, 1, 3}, 4), (Sizes{8, 24}));
}

TEST(SweepSizes, AddsAStepWithoutAFactor) {
  EXPECT_EQ(sweep_sizes({8, 30, 10, 0}, 4), (Sizes{8, 18, 28}));
}

TEST(SweepSizes, IsOneSizeWhereFirstAndLastAreEqual) {
  EXPECT_EQ(sweep_sizes({32, 32, 1, 2}, 4), (Sizes{32}));
}

TEST(SweepSizes, IsEmptyWhereFirstIsMoreThanLast) {
  EXPECT_EQ(sweep_sizes({33, 32, 1, 2}, 4), Sizes{});
}

TEST(SweepSizes, GoesOnFromZeroWithTheLeastThatIsMore) {
  EXPECT_EQ(sweep_sizes({0, 32, 1, 2}, 8), (Sizes{0, 8, 16, 32}));
  EXPECT_EQ(sweep_sizes({0, 7, 1, 2}, 8), (Sizes{0}));
  EXPECT_EQ(sweep_sizes({0, 32, 16, 0}, 8), (Sizes{0, 16, 32})) << "steps do grow";
}

TEST(SweepSizes, EndsWhereTheNextSizeWouldOverflow) {
  constexpr uint64_t huge = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(sweep_sizes({huge - 1, huge, 1, 4}, 4), (Sizes{huge - 1}));
  EXPECT_EQ(sweep_sizes({huge - 1, huge, 7, 0}, 4), (Sizes{huge - 1}));
}

TEST(SweepCounts, AreWholeElementsRoundedDown) {
  EXPECT_EQ(sweep_counts({1024, 4096, 1, 2}, 8 * 4), (Sizes{32, 64, 128}));
  EXPECT_EQ(sweep_counts({1023, 1023, 1, 2}, 8 * 4), (Sizes{31}));
  EXPECT_EQ(sweep_counts({8, 8, 1, 2}, 8 * 4), (Sizes{0}));
}

TEST(SweepCounts, HaveNoneTwice) {
  EXPECT_EQ(sweep_counts({0, 16, 4, 0}, 2 * 4), (Sizes{0, 1, 2}));
  EXPECT_EQ(sweep_counts({1, 64, 1, 2}, 8), (Sizes{0, 1, 2, 4, 8}));
}

}  // namespace
}  // namespace epccl::perf
