// Which copies tokens go to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ep/placement/placement.hpp"
#include "ep/placement/slot_choice.hpp"

namespace epccl::ep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using topology::Cluster;

// Two nodes of two ranks with two slots: expert 0 is everywhere, 1 on ranks 0 and 2, 2 and 3 once.
const std::vector<int> placement = {0, 1, 0, 2, 0, 1, 0, 3};

std::vector<int64_t> chosen(int rank, SlotChoice choice, const std::vector<int64_t>& table) {
  SlotChooser chooser(Cluster::uniform(2, 2), 2, placement, 4, rank, choice);
  std::vector<int64_t> slots(table.size());
  const Status status = chooser.choose(std::span<const int64_t>(table), std::span(slots));
  EXPECT_TRUE(status.ok()) << status.message();
  return slots;
}

TEST(SlotChoice, TakesAllCopiesInTurn) {
  EXPECT_THAT(chosen(0, SlotChoice::even, {0, 0, 0, 0, 0, 1, 1, 1, 3}),
              ElementsAre(0, 2, 4, 6, 0, 1, 5, 1, 7));
  EXPECT_THAT(chosen(3, SlotChoice::even, {0, 1, 0, 1, 2}), ElementsAre(6, 1, 0, 5, 3)) << "begins elsewhere";
}

TEST(SlotChoice, TakesTheNearestCopies) {
  EXPECT_THAT(chosen(1, SlotChoice::near, {0, 0, 1, 1, 3}), ElementsAre(2, 2, 1, 1, 7));
  EXPECT_THAT(chosen(3, SlotChoice::near, {0, 1, 2, 3}), ElementsAre(6, 5, 3, 7));
}

TEST(SlotChoice, LeavesUnusedEntries) {
  EXPECT_THAT(chosen(2, SlotChoice::near, {-1, 0, -1}), ElementsAre(-1, 4, -1));
}

TEST(SlotChoice, BeginsAnewWithEachTable) {
  SlotChooser chooser(Cluster::uniform(2, 2), 2, placement, 4, 1, SlotChoice::even);
  const std::vector<int32_t> table = {0, 1, 0};
  std::vector<int32_t> first(3), second(3);
  ASSERT_TRUE(chooser.choose(std::span<const int32_t>(table), std::span(first)).ok());
  ASSERT_TRUE(chooser.choose(std::span<const int32_t>(table), std::span(second)).ok());
  EXPECT_EQ(first, second);
}

// Ranks that have the same tokens give each copy its share.
TEST(SlotChoice, IsEvenOverAllRanks) {
  std::map<int64_t, int> tokens;
  for (int rank = 0; rank < 4; ++rank)
    for (const int64_t slot : chosen(rank, SlotChoice::even, {0, 1})) ++tokens[slot];
  for (const int slot : {0, 2, 4, 6}) EXPECT_EQ(tokens[slot], 1) << slot;
  for (const int slot : {1, 5}) EXPECT_EQ(tokens[slot], 2) << slot;
}

// Of ranks that share their tokens one in two may have any.
TEST(SlotChoice, IsEvenOverEverySecondRank) {
  std::vector<int> everywhere(16, no_expert);
  for (const size_t slot : {0, 5, 9, 15}) everywhere[slot] = 0;
  for (const int copies : {2, 4}) {
    std::map<int32_t, int> tokens;
    const std::span<const int> placed = std::span(everywhere).first(copies == 2 ? 8 : 16);
    for (int rank = 0; rank < 32; rank += 2) {
      SlotChooser chooser(Cluster::uniform(1, 32), 1, placed, 1, rank, SlotChoice::even);
      std::vector<int32_t> slot{0};
      ASSERT_TRUE(chooser.choose(std::span<const int32_t>(slot), std::span(slot)).ok());
      ++tokens[slot.front()];
    }
    EXPECT_EQ(tokens.size(), static_cast<size_t>(copies));
    for (const auto& [slot, count] : tokens) EXPECT_EQ(count, 16 / copies) << "slot " << slot;
  }
}

TEST(SlotChoice, RefusesExpertsThatAreNowhere) {
  SlotChooser chooser(Cluster::uniform(1, 1), 2, std::vector{0, no_expert}, 2, 0, SlotChoice::even);
  std::vector<int32_t> slots(2);
  const auto refused = [&](const std::vector<int32_t>& table) {
    return std::string(chooser.choose(std::span(table), std::span(slots)).message());
  };
  EXPECT_THAT(refused({0, 1}), HasSubstr("entry 1 of topk_idx is expert 1, of which no slot has a copy"));
  EXPECT_THAT(refused({2, 0}), HasSubstr("entry 0 of topk_idx is expert 2, of 2"));
  EXPECT_THAT(refused({0, -2}), HasSubstr("entry 1 of topk_idx is expert -2"));
}

}  // namespace
}  // namespace epccl::ep
