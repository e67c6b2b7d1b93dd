#include "perf/src/moe/expected_rows.hpp"

#include <algorithm>
#include <tuple>

#include "perf/src/random.hpp"

namespace epccl::perf::moe {
namespace {

ReceivedRows rows_by_source(const std::vector<TopkTable>& tables, const Placement& placement, int rank,
                            Layout layout, uint32_t max_tokens) {
  ReceivedRows received;
  for (size_t source = 0; source < tables.size(); ++source) {
    if (layout == Layout::rank_major) received.slots = source * max_tokens;
    for (uint32_t token = 0; token < tables[source].tokens; ++token) {
      const auto experts = tables[source].row(token);
      const bool here = std::any_of(experts.begin(), experts.end(), [&](int64_t expert) {
        return expert >= 0 && placement.owner(expert) == rank;
      });
      if (here) received.rows.push_back({received.slots++, static_cast<int>(source), token, 0});
    }
  }
  if (layout == Layout::rank_major) received.slots = tables.size() * max_tokens;
  return received;
}

ReceivedRows rows_by_expert(const std::vector<TopkTable>& tables, const Placement& placement, int rank,
                            uint32_t capacity) {
  using Place =
      std::tuple<int64_t, int, uint32_t, uint32_t>;  // expert, source, token, k: in the order of the rows
  std::vector<Place> places;
  for (size_t source = 0; source < tables.size(); ++source) {
    for (uint32_t token = 0; token < tables[source].tokens; ++token) {
      const auto experts = tables[source].row(token);
      for (uint32_t k = 0; k < experts.size(); ++k) {
        if (experts[k] >= 0 && placement.owner(experts[k]) == rank)
          places.emplace_back(experts[k], static_cast<int>(source), token, k);
      }
    }
  }
  std::sort(places.begin(), places.end());
  ReceivedRows received;
  auto next = places.begin();
  for (int64_t expert = 0; expert < placement.experts(); ++expert) {
    if (placement.owner(expert) != rank) continue;
    const uint64_t zone = received.slots;
    for (; next != places.end() && std::get<0>(*next) == expert; ++next)
      received.rows.push_back({received.slots++, std::get<1>(*next), std::get<2>(*next), std::get<3>(*next)});
    if (capacity > 0) received.slots = zone + capacity;
  }
  return received;
}

}  // namespace

ReceivedRows received_rows(const std::vector<TopkTable>& tables, const Placement& placement, int rank,
                           Layout layout, uint32_t max_tokens, uint32_t capacity) {
  if (layout == Layout::expert_major) return rows_by_expert(tables, placement, rank, capacity);
  return rows_by_source(tables, placement, rank, layout, max_tokens);
}

uint32_t returned_rows(std::span<const int64_t> experts, const Placement& placement, Layout layout) {
  std::vector<int> owners;
  for (const int64_t expert : experts) {
    if (expert >= 0) owners.push_back(placement.owner(expert));
  }
  if (layout == Layout::expert_major) return static_cast<uint32_t>(owners.size());
  std::sort(owners.begin(), owners.end());
  return static_cast<uint32_t>(std::unique(owners.begin(), owners.end()) - owners.begin());
}

int weight_of(int source, uint32_t token, uint32_t k) {
  return 1 + static_cast<int>(mix(static_cast<uint64_t>(source), token, k) % largest_weight);
}

}  // namespace epccl::perf::moe
