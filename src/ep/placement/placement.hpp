// Which ranks hold copies of which experts, so that each has as much to do as the others.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "topology/cluster.hpp"

namespace epccl::ep {

/// The expert of a slot that holds none.
inline constexpr int no_expert = -1;

/// In all; beyond any cluster's, and few enough for a placement to take half a minute at most.
inline constexpr int most_slots = 1 << 14;
/// Of ranks and experts, for each of which two bytes are kept.
inline constexpr int64_t most_pairs = 1 << 26;
inline constexpr int most_groups = 256;

/// What is placed. Slot s of rank r is number r * slots_per_rank + s; a *placement* has the expert of each slot, or no_expert.
struct PlacementRules {
  static constexpr uint64_t unlimited = std::numeric_limits<uint64_t>::max();
  int experts = 0;
  int slots_per_rank = 0;
  /// Of as many neighbouring experts each; copies of one group's experts are on one node.
  int groups = 1;
  /// Nothing is changed where the fullest rank has at most 1 + tolerance times the mean.
  double tolerance = 0.02;
  /// Most copies that ranks get and did not have; those that have to be made come on top: of experts that are nowhere, or not where their
  /// group is.
  uint64_t max_moves = unlimited;
};

/// Error: numbers that cannot be, or fewer slots than experts.
Status check_rules(const topology::Cluster& cluster, const PlacementRules& rules);
/// Error: a placement of another size, or an expert that there is not.
Status check_placement(const topology::Cluster& cluster, const PlacementRules& rules,
                       std::span<const int> placement);

/// `load`: of each expert, finite and not negative. `before`: a placement to begin with, or empty; it stays as it is where it is good
/// enough. What is found else has one copy on a rank at most, so that slots may stay empty. Depends on its arguments alone, in the same way on every
/// machine. Error: groups for which the nodes have no room. The rest check_rules() and check_placement() have found in order.
Result<std::vector<int>> place_experts(const topology::Cluster& cluster, const PlacementRules& rules,
                                       std::span<const double> load, std::span<const int> before);

/// What ranks have to do, where each copy of an expert has an equal share of its load.
struct Balance {
  double fullest = 0, mean = 0;
};
Balance balance_of(const topology::Cluster& cluster, const PlacementRules& rules,
                   std::span<const double> load, std::span<const int> placement);

/// Slots whose expert was not on their rank in `before`, and of these those whose expert was not on their node.
struct Moves {
  uint64_t all = 0, network = 0;
};
Moves moves_between(const topology::Cluster& cluster, const PlacementRules& rules,
                    std::span<const int> before, std::span<const int> after);

}  // namespace epccl::ep
