// Copies of experts on ranks, and what each rank has to do with them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace epccl::ep {

/// A rank gets a copy of an expert, or loses one, or both; -1: not that.
struct Change {
  int rank = 0, loses = -1, gets = -1;
};
/// That are made at once.
inline constexpr size_t most_changes = 2;

/// A rank has an expert once at most. Each copy of an expert has an equal share of its load.
class Arrangement {
 public:
  Arrangement(int ranks, int slots, std::span<const double> load);
  /// From now on experts are on ranks with their number only.
  void keep_apart(std::vector<int> of_ranks, std::vector<int> of_experts);

  int ranks() const { return static_cast<int>(of_rank_.size()); }
  int experts() const { return static_cast<int>(expert_load_.size()); }
  bool has(int rank, int expert) const { return has_[index(rank, expert)] != 0; }
  size_t slots_per_rank() const { return slots_; }
  /// It has not, and is of those that may.
  bool may_get(int rank, int expert) const {
    return !has(rank, expert) &&
           (part_of_rank_.empty() || part_of_rank_[at(rank)] == part_of_expert_[at(expert)]);
  }
  bool has_room(int rank) const { return of_rank_[at(rank)].size() < slots_; }
  const std::vector<int>& experts_of(int rank) const { return of_rank_[at(rank)]; }
  const std::vector<int>& ranks_of(int expert) const { return of_expert_[at(expert)]; }
  int copies(int expert) const { return static_cast<int>(ranks_of(expert).size()); }
  double load_of(int rank) const { return rank_load_[at(rank)]; }
  double share(int expert) const { return expert_load_[at(expert)] / std::max(1, copies(expert)); }
  double mean() const { return mean_; }
  /// The first of those that have most to do.
  int fullest() const;
  double fullest_load() const { return load_of(fullest()); }

  /// Had before: no move where it comes again.
  void had(int rank, int expert) { had_[index(rank, expert)] = 1; }
  /// Copies on ranks that had not had them.
  uint64_t moves() const { return moves_; }

  void put(int rank, int expert);
  void take(int rank, int expert);
  void apply(std::span<const Change> changes);

  struct Outcome {
    double fullest = 0;  // of the ranks that have more or less to do then
    int64_t moves = 0;   // more than now
  };
  /// Of changes that can be made: ranks lose what they have, and get what they have not and have room for; no expert's last copy goes
  /// without another coming.
  Outcome outcome_of(std::span<const Change> changes) const;

 private:
  static size_t at(int number) { return static_cast<size_t>(number); }
  size_t index(int rank, int expert) const { return at(rank) * expert_load_.size() + at(expert); }
  double sum_of(int rank) const;
  void count(int rank, int expert, int sign);

  size_t slots_;
  std::vector<double> expert_load_, rank_load_;
  double mean_ = 0;
  std::vector<std::vector<int>> of_rank_, of_expert_;  // ascending
  std::vector<uint8_t> has_, had_;                     // by rank, then expert
  uint64_t moves_ = 0;
  std::vector<int> part_of_rank_, part_of_expert_;  // empty: all are one
};

}  // namespace epccl::ep
