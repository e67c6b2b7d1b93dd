#include "perf/src/overlap/overlap.hpp"

#include <gtest/gtest.h>

namespace epccl::perf::moe {
namespace {

/// Seconds of communication, compute, both, and the compute of both.
Overlap measured(double communication, double compute, double both, double beneath) {
  Overlap o;
  o.communication.median = communication;
  o.compute.median = compute;
  o.overlapped.median = both;
  o.compute_beneath.median = beneath;
  o.lost.median = both - compute;
  o.slower.median = beneath - compute;
  return o;
}

TEST(Overlap, IsIdealWhereOnlyTheLongerCounts) {
  const Overlap hidden = measured(10, 12, 12, 12);
  EXPECT_EQ(hidden.serial(), 22);
  EXPECT_EQ(hidden.exposed(), 0);
  EXPECT_EQ(hidden.exposed_fraction(), 0);
  EXPECT_EQ(hidden.dilation(), 0);
  EXPECT_EQ(hidden.fraction_of_ideal(), 1);
}

TEST(Overlap, IsNoneWhereTheCallsWaitForTheCompute) {
  const Overlap none = measured(10, 12, 22, 12);
  EXPECT_EQ(none.exposed(), 10);
  EXPECT_EQ(none.exposed_fraction(), 1);
  EXPECT_EQ(none.fraction_of_ideal(), 0);
}

TEST(Overlap, ThatSlowsTheComputeDownIsExposedToo) {
  const Overlap dilated = measured(10, 20, 22, 21);
  EXPECT_DOUBLE_EQ(dilated.exposed_fraction(), 0.2);
  EXPECT_DOUBLE_EQ(dilated.dilation(), 0.05);
  EXPECT_DOUBLE_EQ(dilated.fraction_of_ideal(), 0.8);
}

TEST(Overlap, OfAShorterComputeCannotHideMoreThanThat) {
  const Overlap longer = measured(10, 4, 10, 4);
  EXPECT_DOUBLE_EQ(longer.exposed_fraction(), 0.6);
  EXPECT_DOUBLE_EQ(longer.fraction_of_ideal(), 1);
}

TEST(Overlap, TakesCoreTimeFromTheCompute) {
  Overlap o = measured(10, 12, 12.5, 12.5);
  o.background.median = 0.25;
  EXPECT_DOUBLE_EQ(o.background_fraction(), 0.025);
}

TEST(Overlap, OfNothingIsNothing) {
  EXPECT_EQ(Overlap().background_fraction(), 0);
  EXPECT_EQ(Overlap().exposed_fraction(), 0);
  EXPECT_EQ(Overlap().dilation(), 0);
  EXPECT_EQ(Overlap().fraction_of_ideal(), 0);
}

TEST(Overlap, HasAsManyProductsBeneathACallAsTakeAskedForTime) {
  using Balance = std::pair<int, int>;  // products, calls
  EXPECT_EQ(balance(1, 10, 1.2, true), Balance(12, 1));
  EXPECT_EQ(balance(1, 10, 1.2, false), Balance(12, 1));
  EXPECT_EQ(balance(12, 10, 1.2, true), Balance(1, 1));
}

TEST(Overlap, HasCallsForAsLongAsOneProductTakesWhereTheyQueue) {
  using Balance = std::pair<int, int>;
  EXPECT_EQ(balance(25, 10, 1.2, true), Balance(1, 3));
  EXPECT_EQ(balance(25, 10, 1.2, false), Balance(1, 1));
}

}  // namespace
}  // namespace epccl::perf::moe
