#include "ep/placement/arrangement.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace epccl::ep {

Arrangement::Arrangement(int ranks, int slots, std::span<const double> load)
    : slots_(at(slots)),
      expert_load_(load.begin(), load.end()),
      rank_load_(at(ranks)),
      mean_(std::accumulate(load.begin(), load.end(), 0.0) / ranks),
      of_rank_(at(ranks)),
      of_expert_(load.size()),
      has_(at(ranks) * load.size()),
      had_(has_.size()) {}

int Arrangement::fullest() const {
  return static_cast<int>(std::ranges::max_element(rank_load_) - rank_load_.begin());
}

void Arrangement::keep_apart(std::vector<int> of_ranks, std::vector<int> of_experts) {
  part_of_rank_ = std::move(of_ranks);
  part_of_expert_ = std::move(of_experts);
}

// From the start, so that no error adds up, and two that have the same have the same to do.
double Arrangement::sum_of(int rank) const {
  double sum = 0;
  for (const int expert : of_rank_[at(rank)]) sum += share(expert);
  return sum;
}

void Arrangement::count(int rank, int expert, int sign) {
  if (had_[index(rank, expert)] == 0) moves_ += static_cast<uint64_t>(static_cast<int64_t>(sign));
}

void Arrangement::put(int rank, int expert) {
  auto& ranks = of_expert_[at(expert)];
  ranks.insert(std::ranges::lower_bound(ranks, rank), rank);
  auto& experts = of_rank_[at(rank)];
  experts.insert(std::ranges::lower_bound(experts, expert), expert);
  has_[index(rank, expert)] = 1;
  count(rank, expert, 1);
  for (const int holder : ranks) rank_load_[at(holder)] = sum_of(holder);
}

void Arrangement::take(int rank, int expert) {
  auto& ranks = of_expert_[at(expert)];
  ranks.erase(std::ranges::lower_bound(ranks, rank));
  auto& experts = of_rank_[at(rank)];
  experts.erase(std::ranges::lower_bound(experts, expert));
  has_[index(rank, expert)] = 0;
  count(rank, expert, -1);
  rank_load_[at(rank)] = sum_of(rank);
  for (const int holder : ranks) rank_load_[at(holder)] = sum_of(holder);
}

void Arrangement::apply(std::span<const Change> changes) {
  for (const Change& it : changes)
    if (it.loses >= 0) take(it.rank, it.loses);
  for (const Change& it : changes)
    if (it.gets >= 0) put(it.rank, it.gets);
}

// Asked of every change that a step might make: nothing is allocated.
Arrangement::Outcome Arrangement::outcome_of(std::span<const Change> changes) const {
  struct Share {
    int expert = -1, copies = 0;
    double then = 0;
  };
  std::array<Share, 2 * most_changes> known;
  size_t experts = 0;
  Outcome outcome;
  const auto note = [&](int rank, int expert, int more) {
    if (expert < 0) return;
    if (had_[index(rank, expert)] == 0) outcome.moves += more;
    const auto end = known.begin() + static_cast<std::ptrdiff_t>(experts);
    auto it = std::find_if(known.begin(), end, [&](const Share& share) { return share.expert == expert; });
    if (it == end) known[experts++] = {expert, copies(expert), 0};
    it->copies += more;
  };
  for (const Change& it : changes) {
    note(it.rank, it.loses, -1);
    note(it.rank, it.gets, 1);
  }
  const std::span shares(known.data(), experts);
  for (Share& it : shares) it.then = expert_load_[at(it.expert)] / std::max(1, it.copies);
  const auto look_at = [&](int rank) {
    double load = load_of(rank);
    for (const Share& it : shares) {
      const bool now = has(rank, it.expert);
      bool then = now;
      for (const Change& change : changes)
        if (change.rank == rank && (change.gets == it.expert || change.loses == it.expert))
          then = change.gets == it.expert;
      load += (then ? it.then : 0) - (now ? share(it.expert) : 0);
    }
    outcome.fullest = std::max(outcome.fullest, load);
  };
  for (const Change& it : changes) look_at(it.rank);
  for (const Share& it : shares)
    if (it.copies != copies(it.expert)) std::ranges::for_each(ranks_of(it.expert), look_at);
  return outcome;
}

}  // namespace epccl::ep
