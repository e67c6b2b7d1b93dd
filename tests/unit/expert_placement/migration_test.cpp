// The copies of a migration, done on arrays: every slot has what it is to have, and links carry no more than they must.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "ep/placement/migration.hpp"
#include "placements.hpp"
#include "shapes.hpp"

namespace epccl::ep {
namespace {

using topology::Cluster;

/// Slots after the copies, of which each takes what its source has at that time.
std::vector<int> done(const Cluster& cluster, int slots_per_rank, const std::vector<int>& before,
                      const Migration& migration) {
  const auto slots = static_cast<size_t>(slots_per_rank);
  std::vector<std::vector<int>> arrivals(static_cast<size_t>(cluster.ranks()));
  for (size_t rank = 0; rank < arrivals.size(); ++rank)
    arrivals[rank].assign(migration.arrivals[rank].size(), no_expert);
  const auto arrival = [&](int rank, int number) -> int& {
    return arrivals[static_cast<size_t>(rank)].at(static_cast<size_t>(number));
  };
  for (const Migration::Copy& it : migration.first)
    arrival(it.to_rank, it.to) =
        before.at(static_cast<size_t>(it.from_rank) * slots + static_cast<size_t>(it.from));
  // All at once: none takes what another of these brings.
  const auto came = arrivals;
  for (const Migration::Copy& it : migration.second)
    arrival(it.to_rank, it.to) = came[static_cast<size_t>(it.from_rank)].at(static_cast<size_t>(it.from));
  std::vector<int> after = before;
  for (size_t rank = 0; rank < arrivals.size(); ++rank)
    for (size_t i = 0; i < arrivals[rank].size(); ++i)
      after[rank * slots + static_cast<size_t>(migration.arrivals[rank][i])] = arrivals[rank][i];
  return after;
}

TEST(Migration, BringsEveryExpertToItsSlot) {
  auto random = tests::seeded_generator("migrations");
  for (int round = 0; round < 500; ++round) {
    const auto draw = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    const Cluster cluster = round % 3 == 0 ? Cluster::from_sizes({draw(1, 3), draw(1, 4), draw(1, 2)})
                                           : Cluster::uniform(draw(1, 3), draw(1, 4));
    PlacementRules rules;
    rules.slots_per_rank = draw(1, 5);
    rules.experts = draw(1, cluster.ranks() * rules.slots_per_rank);
    const std::vector<int> before = tests::random_placement(random, cluster, rules);
    const std::vector<int> after = tests::random_placement(random, cluster, rules);
    const Migration migration = plan_migration(cluster, rules.slots_per_rank, before, after);
    const std::vector<int> made = done(cluster, rules.slots_per_rank, before, migration);
    for (size_t slot = 0; slot < after.size(); ++slot) {
      const bool lost = std::ranges::binary_search(migration.lost, static_cast<int>(slot));
      const bool anywhere = std::ranges::find(before, after[slot]) != before.end();
      EXPECT_EQ(lost, after[slot] != no_expert && !anywhere) << slot;
      EXPECT_EQ(made[slot], lost || after[slot] == no_expert ? before[slot] : after[slot])
          << slot << ": " << tests::text_of(before) << " -> " << tests::text_of(after);
    }
    if (HasFailure()) return;
  }
}

TEST(Migration, SendsOneCopyToANodeThatHasNone) {
  auto random = tests::seeded_generator("copies for nodes");
  for (int round = 0; round < 200; ++round) {
    const Cluster cluster = Cluster::uniform(3, 4);
    PlacementRules rules;
    rules.slots_per_rank = 3;
    rules.experts = 20;
    const std::vector<int> before = tests::random_placement(random, cluster, rules);
    const std::vector<int> after = tests::random_placement(random, cluster, rules);
    const auto node_of = [&](int rank) { return cluster.node_of(rank); };
    std::set<std::pair<int, int>> have, need;  // expert, node
    for (size_t slot = 0; slot < before.size(); ++slot)
      have.emplace(before[slot], node_of(static_cast<int>(slot) / 3));
    for (size_t slot = 0; slot < after.size(); ++slot) {
      const std::pair wanted(after[slot], node_of(static_cast<int>(slot) / 3));
      if (after[slot] != no_expert && std::ranges::find(before, after[slot]) != before.end() &&
          !have.contains(wanted))
        need.insert(wanted);
    }
    const Migration migration = plan_migration(cluster, 3, before, after);
    size_t crossing = 0;
    for (const Migration::Copy& it : migration.first)
      crossing += node_of(it.from_rank) != node_of(it.to_rank) ? 1 : 0;
    for (const Migration::Copy& it : migration.second) EXPECT_EQ(node_of(it.from_rank), node_of(it.to_rank));
    EXPECT_EQ(crossing, need.size());
    if (HasFailure()) return;
  }
}

TEST(Migration, OfWhatStaysIsNothing) {
  const std::vector<int> before = {0, 1, 2, 3};
  const Migration migration = plan_migration(Cluster::uniform(2, 1), 2, before, before);
  EXPECT_TRUE(migration.first.empty() && migration.second.empty() && migration.lost.empty());
}

TEST(Migration, TakesWhatTheOwnRankHasFromThere) {
  // Rank 1 exchanges its slots, though rank 0 has both experts as well.
  const Migration migration =
      plan_migration(Cluster::uniform(1, 2), 2, std::vector{0, 1, 0, 1}, std::vector{0, 1, 1, 0});
  ASSERT_EQ(migration.first.size(), 2U);
  for (const Migration::Copy& it : migration.first) EXPECT_EQ(it.from_rank, 1);
}

// All of one node goes to another: each rank sends and receives its share, along its rail.
TEST(Migration, UsesAllRails) {
  const Cluster cluster = Cluster::uniform(2, 4);
  std::vector<int> before(16, no_expert), after(16, no_expert);
  for (int slot = 0; slot < 8; ++slot) {
    before[static_cast<size_t>(slot)] = slot;
    after[static_cast<size_t>(slot)] = slot;
    after[static_cast<size_t>(slot + 8)] = slot;
  }
  std::map<int, int> sent, got;
  const Migration migration = plan_migration(cluster, 2, before, after);
  EXPECT_TRUE(migration.second.empty());
  for (const Migration::Copy& it : migration.first) {
    ++sent[it.from_rank];
    ++got[it.to_rank];
    EXPECT_EQ(cluster.local_of(it.from_rank), cluster.local_of(it.to_rank));
  }
  for (int local = 0; local < 4; ++local) {
    EXPECT_EQ(sent[local], 2) << local;
    EXPECT_EQ(got[local + 4], 2) << local;
  }
}

// Of one expert that eight ranks of another node need, the network carries one copy.
TEST(Migration, HandsOnWhatCameOverTheNetwork) {
  std::vector<int> before(16, no_expert), after(16, 7);
  before[3] = 7;
  const Migration migration = plan_migration(Cluster::uniform(2, 8), 1, before, after);
  EXPECT_EQ(migration.first.size(), 8U) << "7 inside the node, 1 to the other";
  EXPECT_EQ(migration.second.size(), 7U);
}

}  // namespace
}  // namespace epccl::ep
