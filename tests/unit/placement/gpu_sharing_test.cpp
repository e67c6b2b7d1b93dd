// Whose work a GPU does while it does a rank's.
#include <gtest/gtest.h>

#include <array>

#include "runtime/engines/gpu_sharing.hpp"

namespace epccl::runtime {
namespace {

// Two GPUs; on the first, two threads of process 10 and one of process 11.
constexpr std::array ranks{RankPlace{1, 10}, RankPlace{2, 12}, RankPlace{1, 10}, RankPlace{1, 11}};

TEST(GpuSharing, IsByWhereTheGpuIs) {
  EXPECT_EQ(find_sharing(ranks, 0, true).here, (std::vector{true, false, true, true}));
  EXPECT_EQ(find_sharing(ranks, 0, true).ranks, 3);
  EXPECT_EQ(find_sharing(ranks, 1, true).here, (std::vector{false, true, false, false}));
  EXPECT_EQ(find_sharing(ranks, 1, true).ranks, 1);
}

TEST(GpuSharing, OfProcessesThatTakeTurnsIsWithThreadsOfTheOwnOne) {
  EXPECT_EQ(find_sharing(ranks, 0, false).at_once, 2);
  EXPECT_EQ(find_sharing(ranks, 3, false).at_once, 1);
  EXPECT_EQ(find_sharing(ranks, 3, false).ranks, 3);
}

TEST(GpuSharing, OfProcessesServedAtOnceIsWithAllOfThem) {
  EXPECT_EQ(find_sharing(ranks, 0, true).at_once, 3);
  EXPECT_EQ(find_sharing(ranks, 3, true).at_once, 3);
}

TEST(GpuSharing, IsWithNobodyWhereNoPlaceIsKnown) {
  constexpr std::array unknown{RankPlace{0, 10}, RankPlace{0, 10}};
  EXPECT_EQ(find_sharing(unknown, 0, true).here, (std::vector{false, false}));
  EXPECT_EQ(find_sharing(unknown, 0, true).ranks, 0);
  EXPECT_EQ(find_sharing(unknown, 0, true).at_once, 1);
}

}  // namespace
}  // namespace epccl::runtime
