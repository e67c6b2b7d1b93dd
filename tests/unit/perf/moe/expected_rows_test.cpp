#include "perf/src/moe/expected_rows.hpp"

#include <gtest/gtest.h>

namespace epccl::perf::moe {
namespace {

/// Two ranks with two experts each.
const Placement placement({0, 0}, 4);

std::vector<TopkTable> tables() {
  return {{3, 2, {2, 3, 0, 1, 3, 0}},  // of rank 0
          {2, 2, {3, 3, 2, -1}}};      // of rank 1
}

using Rows = std::vector<ReceivedRow>;

TEST(ReceivedRows, AreBySourceThenToken) {
  const ReceivedRows received = received_rows(tables(), placement, 1, Layout::flat, 3);
  EXPECT_EQ(received.slots, 4u);
  EXPECT_EQ(received.rows, (Rows{{0, 0, 0, 0}, {1, 0, 2, 0}, {2, 1, 0, 0}, {3, 1, 1, 0}}));
}

TEST(ReceivedRows, OfRankMajorBeginAtTheSourcesPlace) {
  const ReceivedRows received = received_rows(tables(), placement, 1, Layout::rank_major, 3);
  EXPECT_EQ(received.slots, 6u);
  EXPECT_EQ(received.rows, (Rows{{0, 0, 0, 0}, {1, 0, 2, 0}, {3, 1, 0, 0}, {4, 1, 1, 0}}));
  EXPECT_EQ(received_rows(tables(), placement, 0, Layout::rank_major, 3).slots, 6u);
}

TEST(ReceivedRows, OfExpertMajorAreByExpertThenSourceThenToken) {
  const ReceivedRows received = received_rows(tables(), placement, 1, Layout::expert_major, 3);
  EXPECT_EQ(received.slots, 6u);
  EXPECT_EQ(received.rows,
            (Rows{{0, 0, 0, 0}, {1, 1, 1, 0}, {2, 0, 0, 1}, {3, 0, 2, 0}, {4, 1, 0, 0}, {5, 1, 0, 1}}));
}

TEST(ReceivedRows, OfExpertMajorBeginAtTheExpertsPlaceWhereEachHasRoomForAll) {
  const ReceivedRows received = received_rows(tables(), placement, 1, Layout::expert_major, 3, 6);
  EXPECT_EQ(received.slots, 12u);
  EXPECT_EQ(received.rows,
            (Rows{{0, 0, 0, 0}, {1, 1, 1, 0}, {6, 0, 0, 1}, {7, 0, 2, 0}, {8, 1, 0, 0}, {9, 1, 0, 1}}));
}

TEST(ReturnedRows, AreOneForEachRankOrExpert) {
  const std::vector<int64_t> experts = {3, 2, -1, 0};
  EXPECT_EQ(returned_rows(experts, placement, Layout::flat), 2u);
  EXPECT_EQ(returned_rows(experts, placement, Layout::rank_major), 2u);
  EXPECT_EQ(returned_rows(experts, placement, Layout::expert_major), 3u);
  EXPECT_EQ(returned_rows(std::vector<int64_t>{-1, -1}, placement, Layout::flat), 0u);
}

TEST(Weights, AreSmallAndNotAllAlike) {
  int sum = 0;
  for (uint32_t token = 0; token < 100; ++token) {
    const int weight = weight_of(1, token, 2);
    EXPECT_TRUE(weight >= 1 && weight <= largest_weight);
    sum += weight;
  }
  EXPECT_GT(sum, 120);
  EXPECT_LT(sum, 180);
}

}  // namespace
}  // namespace epccl::perf::moe
