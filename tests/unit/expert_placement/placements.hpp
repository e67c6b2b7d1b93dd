// Loads and placements for tests, and what every placement must be.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ep/placement/placement.hpp"

namespace epccl::tests {

/// Of which a few have most: expert ranks in random order, load of the i-th 1 / i^skew.
std::vector<double> skewed_loads(std::mt19937_64& random, int experts, double skew);

/// Fails the test unless each expert is somewhere, on a rank once at most, and nothing else is anywhere.
void expect_whole(const topology::Cluster& cluster, const ep::PlacementRules& rules,
                  std::span<const int> placement);

/// Load of the fullest rank over the mean.
double imbalance(const topology::Cluster& cluster, const ep::PlacementRules& rules,
                 std::span<const double> load, std::span<const int> placement);

/// Copies that ranks have in `after` and had not.
uint64_t moves_between(const ep::PlacementRules& rules, std::span<const int> before,
                       std::span<const int> after);

/// Slots anywhere, some of which are empty, some experts nowhere, some twice on a rank.
std::vector<int> random_placement(std::mt19937_64& random, const topology::Cluster& cluster,
                                  const ep::PlacementRules& rules);

std::string text_of(std::span<const int> placement);

}  // namespace epccl::tests
