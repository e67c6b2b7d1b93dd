#include "placements.hpp"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace epccl::tests {

std::vector<double> skewed_loads(std::mt19937_64& random, int experts, double skew) {
  std::vector<double> load(static_cast<size_t>(experts));
  for (size_t i = 0; i < load.size(); ++i) load[i] = 1000 / std::pow(static_cast<double>(i + 1), skew);
  std::ranges::shuffle(load, random);
  return load;
}

void expect_whole(const topology::Cluster& cluster, const ep::PlacementRules& rules,
                  std::span<const int> placement) {
  ASSERT_EQ(placement.size(), static_cast<size_t>(cluster.ranks() * rules.slots_per_rank));
  std::set<int> there;
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    std::set<int> here;
    for (int slot = 0; slot < rules.slots_per_rank; ++slot) {
      const int expert = placement[static_cast<size_t>(rank * rules.slots_per_rank + slot)];
      if (expert == ep::no_expert) continue;
      ASSERT_TRUE(expert >= 0 && expert < rules.experts) << expert;
      EXPECT_TRUE(here.insert(expert).second) << "rank " << rank << " has expert " << expert << " twice";
      there.insert(expert);
    }
  }
  EXPECT_EQ(there.size(), static_cast<size_t>(rules.experts)) << text_of(placement);
}

double imbalance(const topology::Cluster& cluster, const ep::PlacementRules& rules,
                 std::span<const double> load, std::span<const int> placement) {
  const ep::Balance balance = ep::balance_of(cluster, rules, load, placement);
  return balance.mean > 0 ? balance.fullest / balance.mean : 1;
}

uint64_t moves_between(const ep::PlacementRules& rules, std::span<const int> before,
                       std::span<const int> after) {
  uint64_t moves = 0;
  const auto slots = static_cast<size_t>(rules.slots_per_rank);
  for (size_t slot = 0; slot < after.size(); ++slot) {
    const auto had = before.subspan(slot / slots * slots, slots);
    if (after[slot] != ep::no_expert && std::ranges::find(had, after[slot]) == had.end()) ++moves;
  }
  return moves;
}

std::vector<int> random_placement(std::mt19937_64& random, const topology::Cluster& cluster,
                                  const ep::PlacementRules& rules) {
  std::vector<int> placement(static_cast<size_t>(cluster.ranks() * rules.slots_per_rank));
  std::uniform_int_distribution<int> expert(ep::no_expert, rules.experts - 1);
  for (int& slot : placement) slot = expert(random);
  return placement;
}

std::string text_of(std::span<const int> placement) {
  return fmt::format("{}", fmt::join(placement, " "));
}

}  // namespace epccl::tests
