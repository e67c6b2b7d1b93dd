// Plans run with real data in random orders: the truth that the verifier is held against.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <tuple>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::plan::testing {

/// A seed; EPCCL_TEST_SEED repeats that of an earlier run.
unsigned test_seed();

/// Runs a plan in a random order. Where a plan speaks of a byte there is a number here, a bfloat16 kept as
/// the 32 bits of a float; those of the inputs differ for every (rank, offset).
class RandomRun {
 public:
  /// Every buffer has `size` numbers, 64 at most; 8 ranks at most.
  RandomRun(const Plan& plan, uint64_t size, std::mt19937& random);

  static uint32_t input(int rank, uint64_t at);

  /// What a row must have at `at` of its bytes to be the sum of these terms.
  static uint32_t sum(std::span<const RowSum::Term> terms, uint64_t at);

  /// False when it stops before all steps are complete.
  bool run();

  uint32_t output(int rank, uint64_t at) const { return memory_[3 * static_cast<size_t>(rank) + 1][at]; }

 private:
  // A send reads its source at any time between its start and its completion.
  enum class State : uint8_t { waiting, started, complete };

  bool can_move(size_t rank, uint32_t index) const;
  bool move(size_t rank, uint32_t index);
  void copy(const Step& step);
  void move_rows(const RankPlan& plan, const Step& step);
  void reduce_rows(const RankPlan& plan, const Step& step);
  uint32_t reduced(const RankPlan& plan, const Step& step, uint32_t sum, uint64_t at) const;

  size_t memory_of(const Location& at) const {
    return 3 * static_cast<size_t>(at.rank) + static_cast<size_t>(at.buffer);
  }
  std::vector<uint32_t> read(const Location& from, uint64_t bytes) const;
  void write(const Location& to, const std::vector<uint32_t>& data, uint64_t bytes);

  const Plan& plan_;
  std::mt19937& random_;
  uint64_t size_;
  std::vector<std::vector<State>> state_;
  std::vector<std::vector<uint32_t>> counters_;
  std::vector<std::vector<uint32_t>> memory_;  // [3 * rank + buffer]
  std::map<std::tuple<int, int, uint32_t>, std::vector<uint32_t>> messages_;
};

}  // namespace epccl::plan::testing
