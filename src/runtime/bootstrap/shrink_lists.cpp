#include "runtime/bootstrap/shrink_lists.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <span>
#include <utility>

namespace epccl::runtime {
namespace {

constexpr size_t max_named = 16;  // ranks of a list in one sentence

std::string describe(int rank, const std::vector<int>& excluded) {
  const auto named = std::span(excluded).first(std::min(excluded.size(), max_named));
  const std::string more =
      excluded.size() > max_named ? fmt::format(" and {} more", excluded.size() - max_named) : "";
  return fmt::format("rank {} excludes {}{}", rank, fmt::join(named, ", "), more);
}

}  // namespace

bool ShrinkLists::Shrink::keeps(int rank) const {
  return !std::ranges::binary_search(*excluded, rank);
}

bool ShrinkLists::counts(const Shrink& shrink, int other) const {
  return shrink.keeps(other) &&
         (shrink.failure.empty() || !failures_[shrink.failed_with].ranks.contains(other));
}

std::optional<ShrinkLists::Place> ShrinkLists::counterpart(Place mine, int other) const {
  const auto& own = by_rank_[static_cast<size_t>(mine.first)];
  auto which = std::count_if(own.begin(), own.begin() + mine.second + 1,
                             [&](const Shrink& shrink) { return counts(shrink, other); });
  const auto& theirs = by_rank_[static_cast<size_t>(other)];
  for (uint32_t number = 0; number < theirs.size(); ++number) {
    if (!counts(theirs[number], mine.first) || --which > 0) continue;
    return Place{other, number};
  }
  return std::nullopt;
}

template <typename Visit>
void ShrinkLists::for_each_counterpart(Place mine, Visit visit) {
  for (int other = 0; other < static_cast<int>(by_rank_.size()); ++other) {
    if (other == mine.first || !counts(at(mine), other)) continue;
    if (const auto place = counterpart(mine, other)) visit(*place);
  }
}

std::optional<ShrinkLists::Place> ShrinkLists::waiting(int rank) const {
  const auto& own = by_rank_[static_cast<size_t>(rank)];
  if (own.empty() || own.back().over || !own.back().failure.empty()) return std::nullopt;
  const Place place{rank, static_cast<uint32_t>(own.size() - 1)};
  for (int other = 0; other < static_cast<int>(by_rank_.size()); ++other) {
    if (other == rank || !own.back().keeps(other)) continue;
    const auto theirs = counterpart(place, other);
    if (!theirs || *at(*theirs).excluded != *own.back().excluded) return place;
  }
  return std::nullopt;  // all are there
}

// Breadth first: the shortest circle says it best.
std::vector<ShrinkLists::Place> ShrinkLists::circle(Place first) const {
  std::map<int, std::pair<Place, int>> reached;  // by rank: its shrink, and who waits for it
  std::deque<Place> next{first};
  for (; !next.empty(); next.pop_front()) {
    const Place place = next.front();
    for (int other = 0; other < static_cast<int>(by_rank_.size()); ++other) {
      if (other == place.first || !at(place).keeps(other) || reached.contains(other)) continue;
      const auto theirs = waiting(other);
      if (!theirs || counterpart(place, other)) continue;
      reached.insert({other, {*theirs, place.first}});
      next.push_back(*theirs);
    }
    const auto end = reached.find(first.first);
    if (end == reached.end()) continue;
    std::vector<Place> found{first};
    for (int rank = end->second.second; rank != first.first; rank = reached.at(rank).second)
      found.insert(found.begin() + 1, reached.at(rank).first);
    return found;
  }
  return {};
}

void ShrinkLists::fail(std::vector<Place> failing, const std::string& text, size_t with,
                       std::vector<Verdict>& verdicts) {
  std::vector<Place> failed;
  const std::set<int> before = failures_[with].ranks;
  std::vector<int>& kept = failures_[with].kept;
  const bool is_first = kept.empty();
  while (!failing.empty()) {
    while (!failing.empty()) {
      const Place place = failing.back();
      failing.pop_back();
      if (!at(place).failure.empty()) continue;
      // Before it counts no more. Ranks that failed for the same reason before may be at their next shrink already.
      for_each_counterpart(place, [&](Place other) {
        if (!before.contains(other.first)) failing.push_back(other);
      });
      at(place).failure = text;
      at(place).failed_with = with;
      failures_[with].ranks.insert(place.first);
      failed.push_back(place);
    }
    if (is_first) {
      kept.clear();
      for (int rank = 0; rank < static_cast<int>(by_rank_.size()); ++rank)
        if (std::ranges::any_of(failed, [&](Place place) { return at(place).keeps(rank); }))
          kept.push_back(rank);
    }
    // All that were kept hear of it, unless they want none of these ranks.
    for (const int rank : kept) {
      if (failures_[with].ranks.contains(rank)) continue;
      const auto place = waiting(rank);
      if (place && std::ranges::any_of(failed, [&](Place each) { return at(*place).keeps(each.first); }))
        failing.push_back(*place);
    }
  }
  for (const Place& place : failed) verdicts.push_back({place.first, place.second, text, kept});
}

// Others may have failed without waiting for this rank, and be at their next shrink: what has failed counts first.
std::optional<ShrinkLists::Cause> ShrinkLists::cause(Place mine) {
  std::optional<Cause> why;
  for (const bool of_failed : {true, false})
    for_each_counterpart(mine, [&](Place other) {
      const Shrink& theirs = at(other);
      if (why || theirs.failure.empty() == of_failed) return;
      const size_t with = of_failed ? theirs.failed_with : failures_.size();
      if (*theirs.excluded != *at(mine).excluded) {
        why = Cause{fmt::format("{}, {}", describe(other.first, *theirs.excluded),
                                describe(mine.first, *at(mine).excluded)),
                    with};
      } else {
        at(mine).excluded = theirs.excluded;  // kept once
        if (of_failed) why = Cause{theirs.failure, with};
      }
    });
  if (why) return why;
  for (size_t with = 0; with < failures_.size(); ++with) {
    const Failure& failure = failures_[with];
    if (failure.ranks.contains(mine.first) || !std::ranges::binary_search(failure.kept, mine.first)) continue;
    if (std::ranges::any_of(failure.ranks, [&](int rank) { return at(mine).keeps(rank); }))
      return Cause{failure.text, with};
  }
  return std::nullopt;
}

std::vector<ShrinkLists::Verdict> ShrinkLists::add(int rank, std::vector<int> excluded) {
  auto& own = by_rank_[static_cast<size_t>(rank)];
  const Place mine{rank, static_cast<uint32_t>(own.size())};
  own.push_back({std::make_shared<const std::vector<int>>(std::move(excluded))});
  std::vector<Place> failing{mine};
  std::optional<Cause> why = cause(mine);
  if (!why) {
    failing = circle(mine);
    if (failing.empty()) return {};
    std::vector<std::string> lists;
    lists.reserve(failing.size());
    for (const Place& place : failing) lists.push_back(describe(place.first, *at(place).excluded));
    why = Cause{fmt::format("{}", fmt::join(std::span(lists).first(std::min(lists.size(), max_named)), ", ")),
                failures_.size()};
  }
  if (why->with == failures_.size()) failures_.push_back({why->text, {}, {}});
  std::vector<Verdict> verdicts;
  fail(std::move(failing), why->text, why->with, verdicts);
  return verdicts;
}

void ShrinkLists::over(int rank, uint32_t number) {
  auto& own = by_rank_[static_cast<size_t>(rank)];
  if (number < own.size()) own[number].over = true;
}

}  // namespace epccl::runtime
