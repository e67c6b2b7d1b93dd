// Placements through the C API: what is told of them, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "epccl/placement.h"
#include "layer.hpp"

namespace epccl::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Four experts on two ranks of a node each, with two slots.
struct Question {
  Question() {
    config.num_experts = 4;
    config.num_ranks = 2;
    config.slots_per_rank = 2;
    config.rank_to_node = nodes.data();
  }
  epcclResult_t place() { return epcclEpPlaceExperts(&config, load.data(), before, after.data(), &info); }
  std::string refused() {
    EXPECT_EQ(place(), epcclInvalidArgument);
    EXPECT_THAT(after, ElementsAre(9, 9, 9, 9)) << "is written";
    return epcclGetLastError(nullptr);
  }
  epcclResult_t pick(int rank, const std::vector<int64_t>& experts, std::vector<int64_t>& slots,
                     epcclEpSlotChoice_t choice = EPCCL_EP_SLOTS_EVEN) {
    std::vector<int64_t> table = experts;
    Tensor in(epcclInt64, table.data(), {table.size(), 1}), out(epcclInt64, slots.data(), {slots.size(), 1});
    return epcclEpPickSlots(&config, placement.data(), rank, choice, in, out);
  }

  std::array<int, 2> nodes{7, -3};
  epcclEpPlacementConfig_t config = EPCCL_EP_PLACEMENT_CONFIG_INIT;
  epcclEpPlacementInfo_t info = EPCCL_EP_PLACEMENT_INFO_INIT;
  std::vector<double> load{40, 30, 10, 20};
  std::vector<int> placement{0, 1, 2, 3};
  const int* before = placement.data();
  std::vector<int> after{9, 9, 9, 9};
};

TEST(PlaceExperts, SaysWhatItGainsAndMoves) {
  Question it;
  ASSERT_EQ(it.place(), epcclSuccess) << epcclGetLastError(nullptr);
  EXPECT_THAT(it.after, ElementsAre(3, 1, 2, 0));
  EXPECT_DOUBLE_EQ(it.info.balance_before, 1.4);
  EXPECT_DOUBLE_EQ(it.info.balance_after, 1.0);
  EXPECT_EQ(it.info.moves, 2U);
  EXPECT_EQ(it.info.moves_network, 2U);
  it.config.rank_to_node = nullptr;
  ASSERT_EQ(it.place(), epcclSuccess) << epcclGetLastError(nullptr);
  EXPECT_EQ(it.info.moves_network, 0U) << "all are on one node";
  it.config.max_moves = 1;
  ASSERT_EQ(it.place(), epcclSuccess) << epcclGetLastError(nullptr);
  EXPECT_EQ(it.after, it.placement);
  EXPECT_EQ(it.info.moves, 0U);
}

TEST(PlaceExperts, TakesTheSameArrayForBoth) {
  Question it;
  ASSERT_EQ(
      epcclEpPlaceExperts(&it.config, it.load.data(), it.placement.data(), it.placement.data(), nullptr),
      epcclSuccess)
      << epcclGetLastError(nullptr);
  EXPECT_THAT(it.placement, ElementsAre(3, 1, 2, 0));
}

TEST(PlaceExperts, BeginsWithNothing) {
  Question it;
  it.before = nullptr;
  ASSERT_EQ(it.place(), epcclSuccess) << epcclGetLastError(nullptr);
  EXPECT_DOUBLE_EQ(it.info.balance_before, 0);
  EXPECT_DOUBLE_EQ(it.info.balance_after, 1);
  EXPECT_EQ(it.info.moves, 0U);
}

TEST(PlaceExperts, RefusesWhatCannotBe) {
  const auto refused = [](auto change) {
    Question it;
    change(it);
    return it.refused();
  };
  EXPECT_THAT(refused([](Question& it) { it.config.magic = 0; }), HasSubstr("config.magic is 0"));
  EXPECT_THAT(refused([](Question& it) { it.config.num_ranks = 0; }), HasSubstr("num_ranks is 0"));
  EXPECT_THAT(refused([](Question& it) { it.config.num_ranks = 1U << 31; }),
              HasSubstr("num_ranks is 2147483648"));
  EXPECT_THAT(refused([](Question& it) { it.config.num_experts = 5; }),
              HasSubstr("5 experts have no room in 4 slots"));
  EXPECT_THAT(refused([](Question& it) { it.config.num_experts = 0; }), HasSubstr("num_experts is 0"));
  EXPECT_THAT(refused([](Question& it) { it.config.slots_per_rank = 4'000'000'000; }),
              HasSubstr("slots_per_rank is 4000000000"));
  EXPECT_THAT(refused([](Question& it) { it.config.num_expert_groups = 9; }),
              HasSubstr("num_expert_groups is 9: 4 experts are not"));
  EXPECT_THAT(refused([](Question& it) { it.config.tolerance = NAN; }), HasSubstr("tolerance is nan"));
  EXPECT_THAT(refused([](Question& it) { it.load[2] = -1; }), HasSubstr("load of expert 2 is -1"));
  EXPECT_THAT(refused([](Question& it) { it.load[3] = INFINITY; }), HasSubstr("load of expert 3 is inf"));
  EXPECT_THAT(refused([](Question& it) { it.load[0] = it.load[1] = 1.7e308; }), HasSubstr("the loads' sum"));
  EXPECT_THAT(refused([](Question& it) { it.placement[1] = 4; }),
              HasSubstr("slot 1 of the placement has expert 4, of 4"));
  EXPECT_THAT(refused([](Question& it) { it.info.magic = 1; }), HasSubstr("info.magic is 0x1"));
  Question it;
  EXPECT_EQ(epcclEpPlaceExperts(nullptr, it.load.data(), nullptr, it.after.data(), nullptr),
            epcclInvalidArgument);
  EXPECT_EQ(epcclEpPlaceExperts(&it.config, nullptr, nullptr, it.after.data(), nullptr),
            epcclInvalidArgument);
  EXPECT_EQ(epcclEpPlaceExperts(&it.config, it.load.data(), nullptr, nullptr, nullptr), epcclInvalidArgument);
}

TEST(PickSlots, FollowsThePlacement) {
  Question it;
  it.config.num_experts = 3;
  it.placement = {0, 1, 2, 0};
  std::vector<int64_t> slots(5);
  ASSERT_EQ(it.pick(0, {0, 0, 0, -1, 2}, slots), epcclSuccess) << epcclGetLastError(nullptr);
  EXPECT_THAT(slots, ElementsAre(0, 3, 0, -1, 2));
  ASSERT_EQ(it.pick(1, {0, 0, 0, -1, 1}, slots, EPCCL_EP_SLOTS_NEAR), epcclSuccess)
      << epcclGetLastError(nullptr);
  EXPECT_THAT(slots, ElementsAre(3, 3, 3, -1, 1));
}

TEST(PickSlots, RefusesWhatCannotBe) {
  Question it;
  std::vector<int64_t> slots(2), fewer(1);
  const auto refused = [&](epcclResult_t result) {
    EXPECT_EQ(result, epcclInvalidArgument);
    return std::string(epcclGetLastError(nullptr));
  };
  EXPECT_THAT(refused(it.pick(2, {0, 0}, slots)), HasSubstr("rank is 2, of 2"));
  EXPECT_THAT(refused(it.pick(-1, {0, 0}, slots)), HasSubstr("rank is -1"));
  EXPECT_THAT(refused(it.pick(0, {0, 4}, slots)), HasSubstr("entry 1 of topk_idx is expert 4, of 4"));
  EXPECT_THAT(refused(it.pick(0, {0, 0}, fewer)), HasSubstr("topk_idx and slot_idx are not of one size"));
  EXPECT_THAT(refused(it.pick(0, {0, 0}, slots, static_cast<epcclEpSlotChoice_t>(5))), HasSubstr("choice 5"));
  std::vector<int64_t> memory(3);
  Tensor lower(epcclInt64, memory.data(), {2, 1}), upper(epcclInt64, memory.data() + 1, {2, 1});
  EXPECT_THAT(
      refused(epcclEpPickSlots(&it.config, it.placement.data(), 0, EPCCL_EP_SLOTS_EVEN, lower, upper)),
      HasSubstr("overlaps"));
  it.placement[3] = 0;
  EXPECT_THAT(refused(it.pick(0, {0, 3}, slots)), HasSubstr("is expert 3, of which no slot has a copy"));
}

}  // namespace
}  // namespace epccl::tests
