// Sleeping for what peers of the node post.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "node.hpp"

namespace epccl::transports {
namespace {

using Bed = NodeMemory::Bed;

// A sleep this long means that nobody woke the sleeper.
constexpr double for_ever = 20;

class Sleep : public testing::TestWithParam<Bed> {
 protected:
  static bool holds(const NodeMemory& node, const SleepFor& reason, int ranks) {
    for (int local = 0; local < ranks; ++local)
      if ((reason.locals[0] >> local & 1) != 0 && node.counter(local, reason.slot) < reason.value)
        return false;
    return true;
  }
  /// Sleeps once, as a waiting rank does; true when it was woken, false when it slept to the end.
  static bool sleep_for(NodeMemory& node, const SleepReasons& reasons, int ranks, double seconds = for_ever) {
    const double begin = now_seconds();
    node.announce_sleep(reasons, GetParam());
    if (std::ranges::none_of(reasons.all(), [&](const SleepFor& reason) {
          return reason.slot != SleepFor::any_message && holds(node, reason, ranks);
        })) {
      if (GetParam() == Bed::futex) {
        node.sleep(seconds);
      } else {
        pollfd bell{node.doorbell_fd(), POLLIN, 0};
        ::poll(&bell, 1, static_cast<int>(seconds * 1e3));
      }
    }
    node.finish_sleep();
    return now_seconds() - begin < seconds;
  }
};

TEST_P(Sleep, EndsWhenTheLastOfThoseWaitedForHasPosted) {
  Node node(4);
  SleepFor reason{5, 7, {}};
  for (const int local : {1, 2, 3}) reason.add(local);
  std::atomic<bool> woken = false;
  std::thread sleeper([&] {
    EXPECT_TRUE(sleep_for(node[0], reason, node.ranks()));
    EXPECT_TRUE(holds(node[0], reason, node.ranks())) << "woken too early";
    woken = true;
  });
  const auto let_it_sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  let_it_sleep();
  node[1].post(5, 7);
  node[2].post(5, 9);  // further than asked for counts
  node[3].post(5, 6);  // not far enough
  node[3].post(4, 7);  // another counter
  let_it_sleep();
  EXPECT_FALSE(woken);
  node[3].post(5, 7);
  sleeper.join();
}

TEST(SleepReasons, AreTheLowestValueOfEachCounterAndAllWhoHaveToReachIt) {
  SleepReasons reasons;
  reasons.add(5, 2, 1);
  reasons.add(4, 9, 1);
  reasons.add(5, 3, 2);
  reasons.add(5, 2, 3);
  reasons.add(4, 8, 2);
  ASSERT_EQ(reasons.all().size(), 2U);
  EXPECT_EQ(reasons.all()[0].slot, 5);
  EXPECT_EQ(reasons.all()[0].value, 2U);
  EXPECT_EQ(reasons.all()[0].locals[0], 0b1010U);
  EXPECT_EQ(reasons.all()[1].slot, 4);
  EXPECT_EQ(reasons.all()[1].value, 8U);
  EXPECT_EQ(reasons.all()[1].locals[0], 0b100U);
}

TEST_P(Sleep, EndsWithTheFirstOfSeveralReasons) {
  for (const int first : {0, 1}) {
    Node node(3);
    SleepReasons reasons;
    for (const int slot : {5, 6})
      for (const int local : {1, 2}) reasons.add(slot, 7, local);
    std::thread sleeper([&] {
      EXPECT_TRUE(sleep_for(node[0], reasons, node.ranks()));
      EXPECT_TRUE(holds(node[0], reasons.all()[static_cast<size_t>(first)], node.ranks()));
    });
    node[1].post(5, 7);
    node[2].post(6, 7);
    node[first == 0 ? 2 : 1].post(first == 0 ? 5 : 6, 7);
    sleeper.join();
  }
}

TEST_P(Sleep, DoesNotBeginWhenEverythingIsThereAlready) {
  Node node(2);
  node[1].post(0, 1);
  SleepFor reason{0, 1, {}};
  reason.add(1);
  EXPECT_TRUE(sleep_for(node[0], reason, node.ranks()));
}

TEST_P(Sleep, EndsWhenAnotherThreadOfTheRankSaysSo) {
  Node node(2);
  SleepFor reason{0, 1, {}};
  reason.add(1);
  std::atomic<bool> woken = false;
  std::thread sleeper([&] {
    EXPECT_TRUE(sleep_for(node[0], reason, node.ranks()));
    woken = true;
  });
  // Who does not sleep yet does not hear it.
  while (!woken) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    node[0].wake_self();
  }
  sleeper.join();
}

TEST_P(Sleep, ForAMessageEndsWithOneButNotWithPosts) {
  Node node(2);
  std::atomic<bool> woken = false;
  std::thread sleeper([&] {
    EXPECT_TRUE(sleep_for(node[0], SleepFor{}, node.ranks()));
    woken = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  node[1].post(0, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(woken);
  const double until = now_seconds() + for_ever;
  while (!woken && now_seconds() < until) {
    node[1].notify_message(0);
    std::this_thread::yield();
  }
  EXPECT_TRUE(woken);
  sleeper.join();
}

// Ranks that meet again and again, each asleep until all others have come: one lost wake-up stops them all.
TEST_P(Sleep, LosesNoWakeUp) {
  constexpr int rounds = 3000;
  Node node(5);
  std::vector<std::thread> ranks;
  std::atomic<int> slept_to_the_end = 0;
  for (int local = 0; local < node.ranks(); ++local) {
    ranks.emplace_back([&, local] {
      for (uint64_t round = 1; round <= rounds && slept_to_the_end == 0; ++round) {
        node[local].post(3, round);
        SleepFor others{3, round, {}};
        for (int other = 0; other < node.ranks(); ++other)
          if (other != local) others.add(other);
        while (!holds(node[local], others, node.ranks()) && slept_to_the_end == 0)
          if (!sleep_for(node[local], others, node.ranks())) ++slept_to_the_end;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(slept_to_the_end, 0);
}

INSTANTIATE_TEST_SUITE_P(Beds, Sleep, testing::Values(Bed::futex, Bed::doorbell),
                         [](const auto& bed) { return bed.param == Bed::futex ? "Futex" : "Doorbell"; });

}  // namespace
}  // namespace epccl::transports
