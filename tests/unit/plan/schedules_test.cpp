// The verifier against the truth: plans are damaged at random, and those it accepts are run with real bytes
// in many random orders. Every order must end, and end with the right output.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "plan/printer.hpp"
#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

constexpr uint32_t poison = 0xdeadbeef;

/// Runs a plan in a random order. A byte of input is a number unique to (rank, offset), kept in 32 bits.
class RandomRun {
 public:
  RandomRun(const Plan& plan, uint64_t size, std::mt19937& random)
      : plan_(plan), random_(random), size_(size) {
    for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      state_.emplace_back(plan.ranks[rank].steps.size(), State::waiting);
      counters_.emplace_back(max_slots, 0);
      for (size_t buffer = 0; buffer < 3; ++buffer) memory_.emplace_back(size, poison);
      for (uint64_t at = 0; at < size; ++at) memory_[3 * rank][at] = input(static_cast<int>(rank), at);
    }
  }

  static uint32_t input(int rank, uint64_t at) {
    return static_cast<uint32_t>(rank) * 65536 + static_cast<uint32_t>(at);
  }

  /// False when it stops before all steps are complete.
  bool run() {
    size_t left = 0;
    for (const RankPlan& rank : plan_.ranks) left += rank.steps.size();
    while (left > 0) {
      std::vector<std::pair<size_t, uint32_t>> possible;
      for (size_t rank = 0; rank < plan_.ranks.size(); ++rank)
        for (uint32_t index = 0; index < plan_.ranks[rank].steps.size(); ++index)
          if (can_move(rank, index)) possible.emplace_back(rank, index);
      if (possible.empty()) return false;
      const auto [rank, index] = possible[random_() % possible.size()];
      if (move(rank, index)) --left;
    }
    return true;
  }

  uint32_t output(int rank, uint64_t at) const { return memory_[3 * static_cast<size_t>(rank) + 1][at]; }

 private:
  // A send reads its source at any time between its start and its completion.
  enum class State : uint8_t { waiting, started, complete };

  bool can_move(size_t rank, uint32_t index) const {
    const Step& step = plan_.ranks[rank].steps[index];
    if (state_[rank][index] == State::complete) return false;
    if (state_[rank][index] == State::started) return true;
    for (const uint32_t dependency : plan_.ranks[rank].dependencies_of(step))
      if (state_[rank][dependency] != State::complete) return false;
    if (step.kind == Kind::wait) return counters_[static_cast<size_t>(step.peer)][step.slot] >= step.value;
    if (step.kind == Kind::recv) return messages_.contains({step.peer, static_cast<int>(rank), step.tag});
    return true;
  }

  /// True when the step is complete.
  bool move(size_t rank, uint32_t index) {
    const Step& step = plan_.ranks[rank].steps[index];
    const auto key = std::tuple(static_cast<int>(rank), step.peer, step.tag);
    if (step.kind == Kind::send && state_[rank][index] == State::waiting) {
      state_[rank][index] = State::started;
      // Its data may be on the way long before it is complete.
      if (random_() % 2 == 0) messages_[key] = read(step.source, step.bytes);
      return false;
    }
    if (step.kind == Kind::send) messages_[key] = read(step.source, step.bytes);
    if (step.kind == Kind::recv)
      write(step.destination, messages_.at({step.peer, static_cast<int>(rank), step.tag}), step.bytes);
    if (step.kind == Kind::post) counters_[rank][step.slot] = step.value;
    if (step.kind == Kind::copy)
      for (uint32_t row = 0; row < step.rows; ++row) {
        Location from = step.source, to = step.destination;
        from.offset += row * step.source_stride;
        to.offset += row * step.destination_stride;
        write(to, read(from, step.bytes), step.bytes);
      }
    state_[rank][index] = State::complete;
    return true;
  }

  size_t memory_of(const Location& at) const {
    return 3 * static_cast<size_t>(at.rank) + static_cast<size_t>(at.buffer);
  }

  std::vector<uint32_t> read(const Location& from, uint64_t bytes) const {
    std::vector<uint32_t> data(bytes, poison);
    for (uint64_t i = 0; i < bytes && from.offset + i < size_; ++i)
      data[i] = memory_[memory_of(from)][from.offset + i];
    return data;
  }
  void write(const Location& to, const std::vector<uint32_t>& data, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes && to.offset + i < size_; ++i)
      memory_[memory_of(to)][to.offset + i] = data[i];
  }

  const Plan& plan_;
  std::mt19937& random_;
  uint64_t size_;
  std::vector<std::vector<State>> state_;
  std::vector<std::vector<uint32_t>> counters_;
  std::vector<std::vector<uint32_t>> memory_;  // [3 * rank + buffer]
  std::map<std::tuple<int, int, uint32_t>, std::vector<uint32_t>> messages_;
};

/// Changes one thing of one step, or drops one dependency. Returns what it did.
std::string damage(Plan& plan, std::mt19937& random) {
  while (true) {
    RankPlan& rank = plan.ranks[random() % plan.ranks.size()];
    const auto index = static_cast<uint32_t>(random() % rank.steps.size());
    Step& step = rank.steps[index];
    const std::string before = to_text(rank, index);
    const uint64_t offset = 4 * (random() % 3);
    switch (random() % 6) {
      case 0:
      case 1:
        if (step.dependency_count == 0) continue;
        // The last takes the place of the one dropped.
        std::swap(rank.dependencies[step.first_dependency + random() % step.dependency_count],
                  rank.dependencies[step.first_dependency + step.dependency_count - 1]);
        --step.dependency_count;
        break;
      case 2:
        step.source.offset += offset;
        break;
      case 3:
        step.destination.offset += offset;
        break;
      case 4:
        if (step.kind != Kind::wait || step.value == 0) continue;
        --step.value;
        break;
      default:
        if (step.kind != Kind::wait) continue;
        step.peer = plan.cluster.rank_at(plan.cluster.node_of(rank.rank), 0);
    }
    return before + "\n  became " + to_text(rank, index);
  }
}

void expect_right_in_any_order(const Plan& plan, const std::vector<Transfer>& expected,
                               std::mt19937& random) {
  for (int run = 0; run < 15; ++run) {
    RandomRun random_run(plan, 64, random);
    ASSERT_TRUE(random_run.run()) << "accepted, but stops";
    for (const Transfer& transfer : expected)
      for (uint64_t at = 0; at < transfer.bytes; ++at)
        ASSERT_EQ(random_run.output(transfer.destination_rank, transfer.destination_offset + at),
                  RandomRun::input(transfer.source_rank, transfer.source_offset + at))
            << "accepted, but wrong in the output of rank " << transfer.destination_rank;
  }
}

TEST(Schedules, WhatIsAcceptedIsRightInEveryOrder) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::vector<Transfer> expected = alltoall(8, 4);
  int refusals = 0;
  constexpr int rounds = 400;
  for (int round = 0; round < rounds; ++round) {
    Plan plan = two_stage(4, 2, 4, 1 + static_cast<int>(random() % 2));
    const std::string what = round == 0 ? "nothing" : damage(plan, random);
    SCOPED_TRACE("damage: " + what);
    if (!verify(plan, expected).ok()) {
      ASSERT_NE(round, 0);
      ++refusals;
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(expect_right_in_any_order(plan, expected, random));
  }
  // Some damage does no harm (a dependency that another one implies), most does.
  EXPECT_GT(refusals, rounds / 4);
}

}  // namespace
}  // namespace epccl::plan::testing
