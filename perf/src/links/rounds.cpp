#include "perf/src/links/rounds.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

namespace epccl::perf::links {
namespace {

/// Everyone meets everyone once, each in one pair of a round at most: the first stays, the others go round.
std::vector<Round> meetings(std::vector<int> ranks) {
  constexpr int nobody = -1;
  if (ranks.size() % 2 == 1) ranks.push_back(nobody);
  std::vector<Round> rounds;
  for (size_t round = 0; round + 1 < ranks.size(); ++round) {
    Round& pairs = rounds.emplace_back();
    for (size_t i = 0; i < ranks.size() / 2; ++i) {
      const auto [first, second] = std::minmax(ranks[i], ranks[ranks.size() - 1 - i]);
      if (first != nobody) pairs.emplace_back(first, second);
    }
    std::rotate(ranks.begin() + 1, ranks.end() - 1, ranks.end());
  }
  return rounds;
}

/// The rounds of each side by side.
std::vector<Round> side_by_side(const std::map<int, std::vector<int>>& members) {
  std::vector<Round> all;
  for (const auto& [name, ranks] : members) {
    const std::vector<Round> own = meetings(ranks);
    all.resize(std::max(all.size(), own.size()));
    for (size_t i = 0; i < own.size(); ++i) all[i].insert(all[i].end(), own[i].begin(), own[i].end());
  }
  std::erase_if(all, [](const Round& round) { return round.empty(); });
  return all;
}

/// All ranks of one node with all of another, node by node, in as many shifts as the larger has ranks: of each node as many are busy in each
/// round, and share what they share.
std::vector<Round> node_by_node(const std::map<int, std::vector<int>>& nodes) {
  std::vector<int> numbers;
  for (const auto& [number, ranks] : nodes) numbers.push_back(number);
  std::vector<Round> all;
  for (const Round& meeting : meetings(numbers)) {
    for (size_t shift = 0, busy = 1; busy > 0; ++shift) {
      Round round;
      for (const auto& [one, other] : meeting) {
        const std::vector<int>&first = nodes.at(one), &second = nodes.at(other);
        const bool first_is_larger = first.size() > second.size();
        const std::vector<int>&larger = first_is_larger ? first : second,
              &smaller = first_is_larger ? second : first;
        for (size_t i = 0; i < smaller.size() && shift < larger.size(); ++i) {
          const auto [low, high] = std::minmax(smaller[i], larger[(i + shift) % larger.size()]);
          round.emplace_back(low, high);
        }
      }
      busy = round.size();
      if (busy > 0) all.push_back(std::move(round));
    }
  }
  return all;
}

}  // namespace

const char* to_string(Pairs pairs) {
  switch (pairs) {
    case Pairs::rails:
      return "rails";
    case Pairs::nodes:
      return "nodes";
    case Pairs::rails_and_nodes:
      return "rails,nodes";
    case Pairs::all:
      return "all";
  }
  return "?";
}

std::optional<Pairs> parse_pairs(std::string_view text) {
  for (const Pairs pairs : {Pairs::rails, Pairs::nodes, Pairs::rails_and_nodes, Pairs::all})
    if (text == to_string(pairs)) return pairs;
  return std::nullopt;
}

std::vector<Group> groups_of(Pairs pairs, const std::vector<int>& node_of) {
  std::map<int, std::vector<int>> nodes, rails;
  for (size_t rank = 0; rank < node_of.size(); ++rank) {
    std::vector<int>& node = nodes[node_of[rank]];
    rails[static_cast<int>(node.size())].push_back(static_cast<int>(rank));
    node.push_back(static_cast<int>(rank));
  }
  std::vector<Group> groups;
  if (pairs == Pairs::rails || pairs == Pairs::rails_and_nodes)
    groups.push_back({Pairs::rails, side_by_side(rails)});
  if (pairs == Pairs::all) groups.push_back({Pairs::all, node_by_node(nodes)});
  if (pairs == Pairs::nodes || pairs == Pairs::rails_and_nodes)
    groups.push_back({Pairs::nodes, side_by_side(nodes)});
  std::erase_if(groups, [](const Group& group) { return group.rounds.empty(); });
  return groups;
}

}  // namespace epccl::perf::links
