// A top-k table taken apart, against what the words say.
#include "ep/routing/routing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "shapes.hpp"

namespace epccl::ep {
namespace {

using topology::Cluster;

struct Table {
  uint32_t tokens = 0, k = 0;
  std::vector<int64_t> ids;

  static Table random(uint32_t tokens, uint32_t k, uint32_t experts, std::mt19937_64& random) {
    Table made{tokens, k, {}};
    for (size_t i = 0; i < size_t{tokens} * k; ++i)
      made.ids.push_back(random() % 5 == 0 ? -1 : static_cast<int64_t>(random() % experts));
    return made;
  }
  TopK topk() const { return {ids.data(), true, tokens, k}; }
};

std::vector<uint32_t> listed(std::span<const uint32_t> list) {
  return {list.begin(), list.end()};
}

void expect_right(const Cluster& cluster, const ExpertMap& experts, const Table& table,
                  const Routing& routing) {
  const auto nodes = static_cast<size_t>(cluster.nodes()), ranks = static_cast<size_t>(cluster.ranks());
  std::vector<std::vector<uint32_t>> node_tokens(nodes), expert_entries(nodes), tokens(ranks), entries(ranks);
  for (size_t node = 0; node < nodes; ++node)
    expert_entries[node].assign(experts.node_size(static_cast<int>(node)), 0);
  const auto add = [](std::vector<uint32_t>& list, uint32_t token) {
    const bool first = list.empty() || list.back() != token;
    if (first) list.push_back(token);
    return first;
  };
  for (uint32_t token = 0; token < table.tokens; ++token)
    for (uint32_t position = 0; position < table.k; ++position) {
      const int64_t id = table.ids[size_t{token} * table.k + position];
      if (id < 0) continue;
      const ExpertMap::Place& place = experts.place(static_cast<uint32_t>(id));
      const auto rank = static_cast<size_t>(place.rank), node = static_cast<size_t>(place.node);
      ++expert_entries[node][place.node_index];
      add(node_tokens[node], token);
      const bool first = add(tokens[rank], token);
      entries[rank].push_back(Entry::of(place.node_index - experts.first(place.rank), position, first).word);
    }
  for (int node = 0; node < cluster.nodes(); ++node) {
    const auto n = static_cast<size_t>(node);
    EXPECT_EQ(listed(routing.to_node(node)), node_tokens[n]);
    EXPECT_EQ(listed(routing.expert_entries(node)), expert_entries[n]);
    std::vector<uint32_t> counts, all;
    for (const int member : cluster.members(node)) {
      const auto rank = static_cast<size_t>(member);
      EXPECT_EQ(listed(routing.to_rank(member).tokens), tokens[rank]);
      EXPECT_EQ(listed(routing.to_rank(member).entries), entries[rank]);
      counts.push_back(static_cast<uint32_t>(tokens[rank].size()));
    }
    EXPECT_EQ(listed(routing.rank_tokens(node)), counts);
    for (const auto* part : {&counts, &expert_entries[n], &node_tokens[n]})
      all.insert(all.end(), part->begin(), part->end());
    for (const int member : cluster.members(node))
      for (const auto* part : {&entries[static_cast<size_t>(member)], &tokens[static_cast<size_t>(member)]})
        all.insert(all.end(), part->begin(), part->end());
    EXPECT_EQ(listed(routing.all_of(node)), all);
  }
}

/// The small ones, and more nodes than a word has bits.
std::vector<Cluster> clusters() {
  std::vector<Cluster> all = tests::small_shapes();
  all.push_back(Cluster::uniform(64, 2));
  all.push_back(Cluster::uniform(65, 1));
  all.push_back(Cluster::uniform(130, 2));
  return all;
}

TEST(Routing, HasEveryEntryInItsPlaceTableAfterTable) {
  auto random = tests::seeded_generator("routing");
  for (const Cluster& cluster : clusters()) {
    SCOPED_TRACE(tests::shape_text(cluster));
    const auto count = static_cast<uint32_t>(1 + random() % 200);
    std::vector<int> owners;
    for (uint32_t expert = 0; expert < count; ++expert)
      owners.push_back(static_cast<int>(random() % static_cast<uint64_t>(cluster.ranks())));
    const ExpertMap experts = ExpertMap::make(cluster, count, owners).value();
    Routing routing(cluster, experts);
    for (int round = 0; round < 12; ++round) {
      const auto k = static_cast<uint32_t>(round == 0 ? max_topk : 1 + random() % 9);
      const auto table =
          Table::random(static_cast<uint32_t>(round % 4 == 3 ? 0 : random() % 99), k, count, random);
      routing.read(table.topk());
      ASSERT_FALSE(routing.wrong_entry());
      expect_right(cluster, experts, table, routing);
      const std::vector<int32_t> narrow(table.ids.begin(), table.ids.end());
      expect_right(cluster, experts, table, {cluster, experts, {narrow.data(), false, table.tokens, k}});
      if (HasFailure()) return;
    }
  }
}

TEST(Routing, NamesTheFirstEntryThatIsNoExpert) {
  const Cluster cluster = Cluster::uniform(2, 2);
  const ExpertMap experts = ExpertMap::make(cluster, 8, {}).value();
  Routing routing(cluster, experts);
  for (const int64_t bad : {int64_t{-2}, int64_t{8}, int64_t{1} << 32, std::numeric_limits<int64_t>::min(),
                            std::numeric_limits<int64_t>::max()}) {
    Table table{10, 3, std::vector<int64_t>(30, 7)};
    table.ids[17] = table.ids[25] = bad;
    routing.read(table.topk());
    EXPECT_EQ(routing.wrong_entry(), 17U) << bad;
    if (bad == int32_t(bad)) {
      const std::vector<int32_t> narrow(table.ids.begin(), table.ids.end());
      routing.read({narrow.data(), false, 10, 3});
      EXPECT_EQ(routing.wrong_entry(), 17U) << bad;
    }
  }
  const Table good{1, 3, {0, -1, 7}};
  routing.read(good.topk());
  EXPECT_FALSE(routing.wrong_entry());
  expect_right(cluster, experts, good, routing);
}

}  // namespace
}  // namespace epccl::ep
