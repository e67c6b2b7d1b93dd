#include "ep/placement/placement.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "ep/placement/arrangement.hpp"
#include "ep/placement/balance.hpp"
#include "ep/placement/groups_on_nodes.hpp"

namespace epccl::ep {
namespace {

std::span<const int> slots_of(const PlacementRules& rules, std::span<const int> placement, int rank) {
  const auto slots = static_cast<size_t>(rules.slots_per_rank);
  return placement.subspan(static_cast<size_t>(rank) * slots, slots);
}

/// Whether groups matter.
bool has_parts(const topology::Cluster& cluster, const PlacementRules& rules) {
  return rules.groups > 1 && cluster.nodes() > 1;
}

/// Nothing needs to be changed.
bool is_good_enough(const topology::Cluster& cluster, const PlacementRules& rules,
                    std::span<const double> load, std::span<const int> placement) {
  std::vector<bool> there(load.size());
  std::vector<int> node_of(static_cast<size_t>(rules.groups), -1);
  for (size_t slot = 0; slot < placement.size(); ++slot) {
    if (placement[slot] == no_expert) continue;
    there[static_cast<size_t>(placement[slot])] = true;
    if (!has_parts(cluster, rules)) continue;
    int& node = node_of[static_cast<size_t>(group_of(rules, placement[slot]))];
    const int here = cluster.node_of(static_cast<int>(slot) / rules.slots_per_rank);
    if (node != -1 && node != here) return false;
    node = here;
  }
  const Balance balance = balance_of(cluster, rules, load, placement);
  return std::ranges::find(there, false) == there.end() &&
         balance.fullest <= (1 + rules.tolerance) * balance.mean;
}

std::vector<int> numbers(int count) {
  std::vector<int> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Numbers of those that are in a part.
std::vector<int> numbers_in(int part, const std::vector<int>& parts) {
  std::vector<int> numbers;
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i] == part) numbers.push_back(static_cast<int>(i));
  return numbers;
}

/// Ranks of a part, and the experts that they share.
void arrange_part(Arrangement& all, int slots_per_rank, std::span<const double> load,
                  const std::vector<int>& ranks, const std::vector<int>& experts) {
  std::vector<double> own;
  for (const int expert : experts) own.push_back(load[static_cast<size_t>(expert)]);
  Arrangement part(static_cast<int>(ranks.size()), slots_per_rank, own);
  arrange(part, own);
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const int expert : part.experts_of(static_cast<int>(rank)))
      all.put(ranks[rank], experts[static_cast<size_t>(expert)]);
}

/// What ranks have of it and may have; all that they had, they have not to get.
void begin_with(Arrangement& all, const PlacementRules& rules, std::span<const int> before) {
  for (int rank = 0; rank < all.ranks(); ++rank)
    for (const int expert : slots_of(rules, before, rank)) {
      if (expert == no_expert) continue;
      all.had(rank, expert);
      if (all.may_get(rank, expert)) all.put(rank, expert);
    }
}

/// What stays keeps its slot, and what comes gets those that are free, in ascending order.
void fill_slots(std::vector<int> experts, std::span<const int> before, std::span<int> slots) {
  std::ranges::fill(slots, no_expert);
  for (size_t slot = 0; slot < before.size(); ++slot) {
    const auto found = std::ranges::find(experts, before[slot]);
    if (found == experts.end()) continue;
    slots[slot] = before[slot];
    experts.erase(found);
  }
  auto next = slots.begin();
  for (const int expert : experts) {
    next = std::find(next, slots.end(), no_expert);
    *next = expert;
  }
}

/// Of each rank the one of `sets` that it has most of, the most first; each rank gets one, of its own part.
std::vector<int> matched(const Arrangement& sets, const PlacementRules& rules, std::span<const int> before,
                         const std::vector<int>& parts) {
  struct Pair {
    int common, set, rank;
  };
  std::vector<Pair> pairs;  // that have something in common
  std::vector<int> common(parts.size());
  for (int rank = 0; rank < sets.ranks(); ++rank) {
    std::ranges::fill(common, 0);
    std::vector<int> had(slots_of(rules, before, rank).begin(), slots_of(rules, before, rank).end());
    std::ranges::sort(had);
    had.erase(std::unique(had.begin(), had.end()), had.end());
    for (const int expert : had)
      if (expert != no_expert)
        for (const int set : sets.ranks_of(expert)) ++common[static_cast<size_t>(set)];
    for (int set = 0; set < sets.ranks(); ++set)
      if (common[static_cast<size_t>(set)] > 0 &&
          parts[static_cast<size_t>(set)] == parts[static_cast<size_t>(rank)])
        pairs.push_back({common[static_cast<size_t>(set)], set, rank});
  }
  std::ranges::stable_sort(pairs, [](const Pair& a, const Pair& b) { return a.common > b.common; });
  std::vector<int> set_of(parts.size(), -1);
  std::vector<bool> taken(parts.size());
  const auto give = [&](int rank, int set) {
    if (set_of[static_cast<size_t>(rank)] >= 0 || taken[static_cast<size_t>(set)]) return;
    set_of[static_cast<size_t>(rank)] = set;
    taken[static_cast<size_t>(set)] = true;
  };
  for (const Pair& it : pairs) give(it.rank, it.set);
  for (int part = 0; part <= std::ranges::max(parts); ++part) {
    auto ranks = numbers_in(part, parts), left = ranks;
    std::erase_if(ranks, [&](int rank) { return set_of[static_cast<size_t>(rank)] >= 0; });
    std::erase_if(left, [&](int set) { return taken[static_cast<size_t>(set)]; });
    for (size_t i = 0; i < ranks.size(); ++i) give(ranks[i], left[i]);
  }
  return set_of;
}

/// `sets`: of each rank, whose set of experts it gets.
std::vector<int> in_slots(const Arrangement& arrangement, const PlacementRules& rules,
                          std::span<const int> before, const std::vector<int>& sets) {
  const auto slots = static_cast<size_t>(rules.slots_per_rank);
  std::vector<int> after(sets.size() * slots);
  for (size_t rank = 0; rank < sets.size(); ++rank)
    fill_slots(arrangement.experts_of(sets[rank]),
               before.empty() ? before : slots_of(rules, before, static_cast<int>(rank)),
               std::span(after).subspan(rank * slots, slots));
  return after;
}

/// Which ranks may have which experts: those of one number. All are 0 where groups do not matter.
struct Parts {
  std::vector<int> of_ranks, of_experts;
  uint64_t moves = 0;  // experts that changed their part, for the loads' sake
};

Result<Parts> parts_of(const topology::Cluster& cluster, const PlacementRules& rules,
                       std::span<const double> load, std::span<const int> before, uint64_t max_moves) {
  Parts parts{std::vector<int>(static_cast<size_t>(cluster.ranks())), std::vector<int>(load.size()), 0};
  if (!has_parts(cluster, rules)) return parts;
  PlacementRules limited = rules;
  limited.max_moves = max_moves;
  EPCCL_ASSIGN(const GroupsOnNodes groups, groups_on_nodes(cluster, limited, load, before));
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    parts.of_ranks[static_cast<size_t>(rank)] = cluster.node_of(rank);
  for (int expert = 0; expert < rules.experts; ++expert)
    parts.of_experts[static_cast<size_t>(expert)] =
        groups.node_of[static_cast<size_t>(group_of(rules, expert))];
  parts.moves = groups.moves;
  return parts;
}

Arrangement from_nothing(const PlacementRules& rules, std::span<const double> load, const Parts& parts) {
  Arrangement made(static_cast<int>(parts.of_ranks.size()), rules.slots_per_rank, load);
  made.keep_apart(parts.of_ranks, parts.of_experts);
  for (int part = 0; part <= std::ranges::max(parts.of_ranks); ++part)
    arrange_part(made, rules.slots_per_rank, load, numbers_in(part, parts.of_ranks),
                 numbers_in(part, parts.of_experts));
  improve(made, rules.tolerance, PlacementRules::unlimited);
  return made;
}

Arrangement from_before(const PlacementRules& rules, std::span<const double> load, const Parts& parts,
                        std::span<const int> before) {
  Arrangement kept(static_cast<int>(parts.of_ranks.size()), rules.slots_per_rank, load);
  kept.keep_apart(parts.of_ranks, parts.of_experts);
  begin_with(kept, rules, before);
  add_missing(kept, load);
  improve(kept, rules.tolerance,
          rules.max_moves == PlacementRules::unlimited ? rules.max_moves : rules.max_moves - parts.moves);
  return kept;
}

// How much worse than from nothing it may be where steps have ended.
constexpr double much_worse = 1.05;

}  // namespace

Status check_rules(const topology::Cluster& cluster, const PlacementRules& rules) {
  if (rules.experts < 1) return error(Code::invalid_argument, "num_experts is {}", rules.experts);
  if (rules.slots_per_rank < 1)
    return error(Code::invalid_argument, "slots_per_rank is {}", rules.slots_per_rank);
  const int64_t slots = static_cast<int64_t>(cluster.ranks()) * rules.slots_per_rank;
  if (slots > most_slots)
    return error(Code::invalid_argument, "{} ranks with {} slots: at most {} slots in all", cluster.ranks(),
                 rules.slots_per_rank, most_slots);
  if (slots < rules.experts)
    return error(Code::invalid_argument, "{} experts have no room in {} slots ({} ranks with {})",
                 rules.experts, slots, cluster.ranks(), rules.slots_per_rank);
  if (rules.groups < 1 || rules.groups > most_groups || rules.experts % rules.groups != 0)
    return error(
        Code::invalid_argument,
        "num_expert_groups is {}: {} experts are not as many groups of one size, or these are more than {}",
        rules.groups, rules.experts, most_groups);
  if (static_cast<int64_t>(cluster.ranks()) * rules.experts > most_pairs)
    return error(Code::invalid_argument, "{} experts on {} ranks: at most {} pairs of these", rules.experts,
                 cluster.ranks(), most_pairs);
  if (!(rules.tolerance >= 0))
    return error(Code::invalid_argument, "tolerance is {}: at least 0 is needed", rules.tolerance);
  return {};
}

Status check_placement(const topology::Cluster& cluster, const PlacementRules& rules,
                       std::span<const int> placement) {
  const auto slots = static_cast<size_t>(cluster.ranks()) * static_cast<size_t>(rules.slots_per_rank);
  if (placement.size() != slots)
    return error(Code::invalid_argument, "a placement of {} slots: there are {}", placement.size(), slots);
  for (size_t slot = 0; slot < slots; ++slot)
    if (placement[slot] < no_expert || placement[slot] >= rules.experts)
      return error(Code::invalid_argument, "slot {} of the placement has expert {}, of {}", slot,
                   placement[slot], rules.experts);
  return {};
}

Result<std::vector<int>> place_experts(const topology::Cluster& cluster, const PlacementRules& rules,
                                       std::span<const double> load, std::span<const int> before) {
  if (!before.empty() && is_good_enough(cluster, rules, load, before))
    return std::vector<int>(before.begin(), before.end());
  const std::vector<int> itself = numbers(cluster.ranks());
  EPCCL_ASSIGN(Parts parts, parts_of(cluster, rules, load, before, rules.max_moves));
  if (before.empty()) return in_slots(from_nothing(rules, load, parts), rules, before, itself);
  Arrangement kept = from_before(rules, load, parts, before);
  if (parts.moves > 0) {
    // Groups that move take what they have of `max_moves`, and may come back with fewer copies than they had.
    EPCCL_ASSIGN(Parts where_they_are, parts_of(cluster, rules, load, before, 0));
    Arrangement without = from_before(rules, load, where_they_are, before);
    if (without.fullest_load() <= kept.fullest_load()) {
      kept = std::move(without);
      parts = std::move(where_they_are);
    }
  }
  if (kept.fullest_load() <= (1 + rules.tolerance) * kept.mean())
    return in_slots(kept, rules, before, itself);
  const Arrangement made = from_nothing(rules, load, parts);
  if (kept.fullest_load() > much_worse * made.fullest_load()) {
    std::vector<int> after = in_slots(made, rules, before, matched(made, rules, before, parts.of_ranks));
    if (moves_between(cluster, rules, before, after).all <= rules.max_moves) return after;
  }
  return in_slots(kept, rules, before, itself);
}

Balance balance_of(const topology::Cluster& cluster, const PlacementRules& rules,
                   std::span<const double> load, std::span<const int> placement) {
  std::vector<int> copies(load.size());
  for (const int expert : placement)
    if (expert != no_expert) ++copies[static_cast<size_t>(expert)];
  Balance balance;
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    double work = 0;
    for (const int expert : slots_of(rules, placement, rank))
      if (expert != no_expert)
        work += load[static_cast<size_t>(expert)] / copies[static_cast<size_t>(expert)];
    balance.fullest = std::max(balance.fullest, work);
    balance.mean += work / cluster.ranks();
  }
  return balance;
}

Moves moves_between(const topology::Cluster& cluster, const PlacementRules& rules,
                    std::span<const int> before, std::span<const int> after) {
  std::map<int, std::vector<int>> holders;  // ranks, of each expert
  for (size_t slot = 0; slot < before.size(); ++slot)
    holders[before[slot]].push_back(static_cast<int>(slot) / rules.slots_per_rank);
  Moves moves;
  for (size_t slot = 0; slot < after.size(); ++slot) {
    const int rank = static_cast<int>(slot) / rules.slots_per_rank;
    const std::vector<int>& had = holders[after[slot]];
    if (after[slot] == no_expert || std::ranges::find(had, rank) != had.end()) continue;
    ++moves.all;
    if (std::ranges::none_of(had, [&](int holder) { return cluster.same_node(holder, rank); }))
      ++moves.network;
  }
  return moves;
}

}  // namespace epccl::ep
