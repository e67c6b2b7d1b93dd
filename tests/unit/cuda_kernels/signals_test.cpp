// The kernels of signals in graphs: the same launch again and again, by ranks that are threads.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "../device/numbers.hpp"
#include "launched.hpp"

namespace epccl::device::kernels::testing {
namespace {

constexpr uint32_t slots = 4, meeting = 3;

/// What a rank of a node has: its pass, its words, and what the host sees.
struct Rank {
  uint64_t pass = 0;
  std::vector<uint64_t> words;
  ReplayReport report{};
};

class Node {
 public:
  explicit Node(size_t ranks) : ranks_(ranks) {
    for (Rank& rank : ranks_) rank.words.assign(ranks * slots, 0);
  }
  Rank& operator[](size_t rank) { return ranks_[rank]; }
  uint64_t word(size_t at, size_t of, uint32_t slot) const { return ranks_[at].words[of * slots + slot]; }

  SignalParameters parameters(size_t rank) {
    SignalParameters made;
    made.pass = &ranks_[rank].pass;
    made.words = ranks_[rank].words.data();
    made.report = &ranks_[rank].report;
    made.ranks = static_cast<uint32_t>(ranks_.size());
    made.slots = slots;
    for (size_t other = 0; other < ranks_.size(); ++other)
      if (other != rank) made.told[other] = ranks_[other].words.data() + rank * slots;
    return made;
  }
  /// A pass begins: tells all, waits for all.
  SignalParameters begin(size_t rank, uint32_t call) {
    SignalParameters made = parameters(rank);
    made.begins = 1;
    made.post_count = 1;
    made.posts[0] = {meeting, call};
    for (size_t other = 0; other < ranks_.size(); ++other)
      if (other != rank) made.waits[made.wait_count++] = {static_cast<uint16_t>(other), meeting, 0};
    return made;
  }

 private:
  std::vector<Rank> ranks_;
};

void run_once(const SignalParameters& parameters) {
  std::mt19937_64 random(1);
  run(signals_launch(parameters), random);
}

TEST(GraphSignals, TellEveryOtherRankThePassAndTheValue) {
  Node node(40);
  SignalParameters begin = node.begin(1, 77);
  begin.wait_count = 0;
  SignalParameters post = node.parameters(1);
  post.post_count = 2;
  post.posts[0] = {0, 5};
  post.posts[1] = {2, 6};
  post.ends = 1;
  for (uint64_t pass = 1; pass <= 3; ++pass) {
    run_once(begin);
    EXPECT_EQ(node[1].report.begun, pass);
    EXPECT_EQ(node[1].report.over, pass - 1);
    run_once(post);
    EXPECT_EQ(node[1].report.over, pass);
    EXPECT_EQ(node[1].report.call, 77U);
    for (size_t rank = 0; rank < 40; ++rank) {
      if (rank == 1) continue;
      EXPECT_EQ(node.word(rank, 1, meeting), pass << pass_shift | 77);
      EXPECT_EQ(node.word(rank, 1, 0), pass << pass_shift | 5);
      EXPECT_EQ(node.word(rank, 1, 1), 0U);
      EXPECT_EQ(node.word(rank, 1, 2), pass << pass_shift | 6);
    }
  }
}

TEST(GraphSignals, LetNoRankGetAheadOfTheOthersPass) {
  constexpr size_t ranks = 3;
  constexpr int passes = 20;
  Node node(ranks);
  std::array<std::atomic<int>, ranks> inside{};
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const SignalParameters begin = node.begin(rank, 9);
      for (int pass = 1; pass <= passes; ++pass) {
        inside[rank] = pass;
        run_once(begin);
        for (const auto& other : inside) EXPECT_GE(other.load(), pass);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(node[rank].report.begun, static_cast<uint64_t>(passes));
    EXPECT_EQ(node[rank].report.other, 0U);
  }
}

TEST(GraphSignals, GoOnWhenTheHostGivesUpAndSayWhatWasMissing) {
  Node node(3);
  node[0].report.given_up = 1;
  run_once(node.begin(0, 1));
  const uint64_t awaited = node[0].report.awaited - 1;
  EXPECT_GE(awaited >> 16, 1U) << "rank";
  EXPECT_LE(awaited >> 16, 2U) << "rank";
  EXPECT_EQ(awaited & 0xffff, meeting);
}

TEST(GraphSignals, FindARankThatIsInAnotherCall) {
  Node node(2);
  std::thread other([&] { run_once(node.begin(1, 8)); });
  run_once(node.begin(0, 7));
  other.join();
  // Each has told the other before it looks, so both find it.
  EXPECT_EQ(node[0].report.other, 2U);
  EXPECT_EQ(node[0].report.their_call, 8U);
  EXPECT_EQ(node[1].report.other, 1U);
  EXPECT_NE(node[0].report.given_up, 0U);
}

// --- calls that the host makes ---

struct HostCalls {
  uint64_t count = 0;
  HostCallReport report{};
  ReplayReport replays{};

  void call(uint64_t number, uint32_t says, uint32_t waits) {
    std::mt19937_64 random(1);
    run(host_call_launch({&count, &report, &replays, number, says, waits}), random);
  }
  uint64_t come() { return std::atomic_ref(report.come).load(); }
  void is_over(uint64_t calls) { std::atomic_ref(report.over).store(calls); }
};

TEST(GraphHostCalls, AreCountedAndNamedWhenTheyCome) {
  const auto calls = std::make_unique<HostCalls>();
  for (uint64_t come = 1; come <= 3; ++come) {
    calls->call(70 + come, 1, 0);
    EXPECT_EQ(calls->come(), come);
    EXPECT_EQ(calls->report.call, 70 + come);
    EXPECT_EQ(calls->report.met, 0U);
    calls->is_over(come);
  }
}

TEST(GraphHostCalls, WaitForTheHost) {
  const auto calls = std::make_unique<HostCalls>();
  std::atomic<bool> is_through = false;
  for (uint64_t come = 1; come <= 3; ++come) {
    is_through = false;
    std::thread kernel([&] {
      calls->call(5, 1, 1);
      is_through = true;
    });
    while (calls->come() < come) std::this_thread::yield();
    EXPECT_FALSE(is_through);
    calls->is_over(come);
    kernel.join();
  }
  calls->call(5, 0, 1);  // the last one is over
}

TEST(GraphHostCalls, GoOnWhenTheHostHasGivenUp) {
  const auto calls = std::make_unique<HostCalls>();
  calls->replays.given_up = 1;
  calls->call(5, 1, 1);
  EXPECT_EQ(calls->come(), 1U);
}

TEST(GraphHostCalls, SayThatTwoGraphsHaveMetAndHideNeitherCall) {
  const auto calls = std::make_unique<HostCalls>();
  calls->call(5, 1, 0);
  calls->call(6, 1, 0);  // of another graph: the host has not made the first
  EXPECT_EQ(calls->report.met, 2U);
  EXPECT_EQ(calls->come(), 1U);
  EXPECT_EQ(calls->report.call, 5U);
}

// Whoever is first, one of them is told that it is not alone; until the host gives up, none goes on.
TEST(GraphHostCalls, FindEachOtherWhereTheyComeAtOnce) {
  for (int round = 0; round < 50; ++round) {
    const auto calls = std::make_unique<HostCalls>();
    std::atomic<int> through = 0;
    std::vector<std::thread> kernels;
    for (const uint64_t number : {7, 8})
      kernels.emplace_back([&, number] {
        calls->call(number, 1, 1);
        ++through;
      });
    while (std::atomic_ref(calls->report.met).load() == 0) std::this_thread::yield();
    EXPECT_EQ(through, 0);
    std::atomic_ref(calls->replays.given_up).store(1);
    for (std::thread& kernel : kernels) kernel.join();
    EXPECT_EQ(calls->count, 2U);
    EXPECT_EQ(calls->come(), 1U);
  }
}

}  // namespace
}  // namespace epccl::device::kernels::testing
