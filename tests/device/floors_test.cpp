#include "floors.hpp"

#include <gtest/gtest.h>

namespace epccl::device::test {
namespace {

constexpr double mebibyte = 1 << 20;

double floor_of(Collective which) {
  return Amount{which, 8, 64 << 20}.floor_bytes() / mebibyte;
}

TEST(Floors, AreEachByteReadOnceAndWrittenOnce) {
  EXPECT_EQ(floor_of(Collective::alltoall), 512);
  EXPECT_EQ(floor_of(Collective::allreduce), 512);
  // 64 MiB on one side (8 of each rank), 512 on the other.
  EXPECT_EQ(floor_of(Collective::allgather), 288);
  EXPECT_EQ(floor_of(Collective::reduce_scatter), 288);
}

TEST(Floors, OfRanksThatAreAloneAreTheirBuffer) {
  for (const Collective which :
       {Collective::alltoall, Collective::allgather, Collective::reduce_scatter, Collective::allreduce})
    EXPECT_EQ((Amount{which, 1, 4096}.floor_bytes()), 4096) << text_of(which);
}

TEST(Goals, OfAnAllgatherAreWhatCopiesCanReach) {
  EXPECT_DOUBLE_EQ((Amount{Collective::alltoall, 8, 4096}.goal(false)), 0.90);
  EXPECT_DOUBLE_EQ((Amount{Collective::alltoall, 8, 4096}.goal(true)), 0.85);
  EXPECT_DOUBLE_EQ((Amount{Collective::allgather, 8, 4096}.goal(false)), 0.90 * 288 / 512);
  EXPECT_DOUBLE_EQ((Amount{Collective::reduce_scatter, 8, 4096}.goal(false)), 0.80);
}

}  // namespace
}  // namespace epccl::device::test
