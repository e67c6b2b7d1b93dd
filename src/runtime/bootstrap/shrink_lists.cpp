#include "runtime/bootstrap/shrink_lists.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

void ShrinkLists::fail(Place first, const std::string& text, size_t with, std::vector<Verdict>& verdicts) {
  std::vector<Place> failing{first}, failed;
  const std::set<int> before = failures_[with].ranks;
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
  std::vector<int>& kept = failures_[with].kept;
  const bool is_first = kept.empty();
  for (int rank = 0; is_first && rank < static_cast<int>(by_rank_.size()); ++rank)
    if (std::ranges::any_of(failed, [&](Place place) { return at(place).keeps(rank); })) kept.push_back(rank);
  for (const Place& place : failed) verdicts.push_back({place.first, place.second, text, kept});
}

std::vector<ShrinkLists::Verdict> ShrinkLists::add(int rank, std::vector<int> excluded) {
  auto& own = by_rank_[static_cast<size_t>(rank)];
  const Place mine{rank, static_cast<uint32_t>(own.size())};
  own.push_back({std::make_shared<const std::vector<int>>(std::move(excluded)), "", 0});
  std::string why;
  size_t with = failures_.size();
  // Others may have failed without waiting for this rank, and be at their next shrink: what has failed counts first.
  for (const bool of_failed : {true, false})
    for_each_counterpart(mine, [&](Place other) {
      const Shrink& theirs = at(other);
      if (!why.empty() || theirs.failure.empty() == of_failed) return;
      if (*theirs.excluded == *at(mine).excluded) {
        at(mine).excluded = theirs.excluded;  // kept once
        why = theirs.failure;
      } else {
        why = fmt::format("{}, {}", describe(other.first, *theirs.excluded),
                          describe(rank, *at(mine).excluded));
      }
      if (of_failed) with = theirs.failed_with;
    });
  std::vector<Verdict> verdicts;
  if (why.empty()) return verdicts;
  if (with == failures_.size()) failures_.emplace_back();
  fail(mine, why, with, verdicts);
  return verdicts;
}

}  // namespace epccl::runtime
