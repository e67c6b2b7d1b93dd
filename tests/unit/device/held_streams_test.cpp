#include "device/held_streams.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace epccl::device {
namespace {

using Hold = HeldStreams::Hold;

TEST(HeldStreams, PutOffWhatWouldWaitForThem) {
  int freed = 0;
  const auto free = [&] { ++freed; };
  HeldStreams::when_none(free);
  EXPECT_EQ(freed, 1) << "none is held";
  {
    std::optional<Hold> first(std::in_place), second(std::in_place);
    HeldStreams::when_none(free);
    HeldStreams::when_none(free);
    first.reset();
    EXPECT_EQ(freed, 1) << "one is held still";
  }
  EXPECT_EQ(freed, 3);
}

TEST(HeldStreams, WaitForThreadsOfTheirCommunicatorUntilAllIsQueued) {
  std::optional<Hold> first(std::in_place), second(std::in_place);
  EXPECT_FALSE(HeldStreams::wait_for_threads());
  first->stream_waits(7);
  second->stream_waits(7);
  EXPECT_TRUE(HeldStreams::wait_for_threads());
  EXPECT_FALSE(HeldStreams::wait_for_threads(7));
  EXPECT_TRUE(HeldStreams::wait_for_threads(8));
  second.reset();
  EXPECT_TRUE(HeldStreams::wait_for_threads(8));
  {
    Hold of_several;
    of_several.stream_waits();
    EXPECT_TRUE(HeldStreams::wait_for_threads(7));
  }
  first->stream_needs_no_thread();
  EXPECT_FALSE(HeldStreams::wait_for_threads(8));
  bool is_freed = false;
  HeldStreams::when_none([&is_freed] { is_freed = true; });
  EXPECT_FALSE(is_freed) << "the stream waits still";
  first.reset();
  EXPECT_TRUE(is_freed);
  EXPECT_FALSE(HeldStreams::wait_for_threads());
}

TEST(HeldStreams, PutOffWhatWouldWaitForOtherWorkThatWaits) {
  std::atomic<bool> waits{true};
  std::atomic<int> freed{0};
  const auto free = [&] { ++freed; };
  {
    const HeldStreams::Waiting work([&] { return waits.load(); });
    HeldStreams::when_none(free);
    { const Hold hold; }
    HeldStreams::retry();
    EXPECT_EQ(freed, 0);
    waits = false;
    HeldStreams::retry();
    EXPECT_EQ(freed, 1);
    waits = true;
    HeldStreams::when_none(free);
    HeldStreams::retry_beside();
    waits = false;
    HeldStreams::retry_beside();
    while (freed == 1) std::this_thread::yield();
    waits = true;
    HeldStreams::when_none(free);
    EXPECT_EQ(freed, 2);
  }
  EXPECT_EQ(freed, 3) << "it has ended";
}

TEST(HeldStreams, PutOffSoMuchWhereWorkMayBeginAtAnyTime) {
  std::atomic<bool> may_begin{true};
  size_t freed = 0;
  const auto free = [&] { ++freed; };
  const HeldStreams::Waiting work([] { return false; }, [&] { return may_begin.load(); });
  for (size_t i = 0; i < HeldStreams::most_for_what_begins; ++i) HeldStreams::when_none(free);
  EXPECT_EQ(freed, 0U);
  HeldStreams::when_none(free);
  constexpr size_t all = HeldStreams::most_for_what_begins + 1;
  EXPECT_EQ(freed, all) << "more than that is not kept";
  HeldStreams::when_none(free);
  EXPECT_EQ(freed, all);
  may_begin = false;
  HeldStreams::retry();
  EXPECT_EQ(freed, all + 1);
  may_begin = true;
  HeldStreams::when_none(free);
  EXPECT_TRUE(HeldStreams::settle(0)) << "who needs what is put off gets it";
  EXPECT_EQ(freed, all + 2);
}

TEST(HeldStreams, AreNotHeldWhileSomethingIsFreed) {
  std::atomic<bool> frees{false}, held{false};
  std::thread other;
  HeldStreams::when_none([&] {
    frees = true;
    other = std::thread([&] {
      const Hold hold;
      EXPECT_FALSE(frees);
      held = true;
    });
    const Hold waits_already(Hold::Begins::at_once);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(held);
    frees = false;
  });
  other.join();
  EXPECT_TRUE(held);
}

TEST(HeldStreams, AreNotHeldWhileSomethingIsMade) {
  using Clock = std::chrono::steady_clock;
  // It waits for a moment only: where the other thread does not run in that time, this shows nothing.
  bool is_shown = false;
  for (int attempt = 0; attempt < 50 && !is_shown; ++attempt) {
    std::atomic<bool> made{false}, held_before{false};
    std::optional<Hold> before(std::in_place);
    std::thread other([&] { before.reset(); });
    const auto begin = Clock::now();
    std::optional<HeldStreams::Quiet> quiet(std::in_place);
    is_shown = Clock::now() - begin < std::chrono::milliseconds(150);
    std::thread holds([&] {
      const Hold hold;
      held_before = !made;
    });
    HeldStreams::when_none([&] { made = true; });
    quiet.reset();
    holds.join();
    other.join();
    EXPECT_FALSE(is_shown && held_before);
  }
  EXPECT_TRUE(is_shown);
}

TEST(HeldStreams, AreWaitedForForAMomentOnlyAndThenNobodyIsKeptFromHoldingMore) {
  const Hold waits_for_the_caller;
  const HeldStreams::Quiet quiet;
  const Hold another_of_its_group;
}

TEST(HeldStreams, AreWaitedForAlsoWhereACallThatHoldsOneCouldNot) {
  // Where the other thread does not run in the moment that it waits, this shows nothing.
  bool is_quiet = false;
  for (int attempt = 0; attempt < 20 && !is_quiet; ++attempt) {
    std::optional<Hold> hold(std::in_place);
    { const HeldStreams::Quiet of_that_call(HeldStreams::Quiet::Waits::not_at_all); }
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      hold.reset();
    });
    const HeldStreams::Quiet quiet;
    is_quiet = std::async(std::launch::async, [] { return HeldStreams::settle(0); }).get();
    other.join();
  }
  EXPECT_TRUE(is_quiet);
}

/// Calls that a GPU makes one after the other, which hold their streams until they are made. It begins the last only when no other comes.
class Gpu {
 public:
  Gpu() : thread_([this] { run(); }) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  /// Waits while there are many.
  void issue() {
    auto hold = std::make_unique<Hold>();
    std::unique_lock lock(mutex_);
    calls_.push_back(std::move(hold));
    changed_.notify_all();
    changed_.wait(lock, [&] { return calls_.size() < 4; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!ends_ || !calls_.empty()) {
      changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return ends_ || calls_.size() > 1; });
      if (calls_.empty()) continue;
      auto made = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      made.reset();
      lock.lock();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Hold>> calls_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the rest
};

TEST(HeldStreams, ArePausedForWhatWasPutOffForLongWhereTheProgramIsAlwaysAheadOfTheGpu) {
  using std::chrono::milliseconds;
  const auto before = HeldStreams::set_pauses({milliseconds(1), milliseconds(20'000)});
  std::atomic<bool> freed{false};
  {
    Gpu gpu;
    for (int calls = 0; calls < 2; ++calls) gpu.issue();
    HeldStreams::when_none([&] { freed = true; });
    for (int calls = 0; calls < 5000 && !freed; ++calls) gpu.issue();
    EXPECT_TRUE(freed);
  }
  HeldStreams::set_pauses(before);
}

TEST(HeldStreams, ThatAPauseHasKeptBackBeginWhenWhatWasPutOffIsDone) {
  using std::chrono::milliseconds;
  const auto before = HeldStreams::set_pauses({milliseconds(0), milliseconds(20'000)});
  for (int attempt = 0; attempt < 200; ++attempt) {
    std::atomic<bool> freed{false};
    std::optional<Hold> first(std::in_place);
    HeldStreams::when_none([&] { freed = true; });
    std::thread next([&] {
      const Hold hold;
      EXPECT_TRUE(freed);
    });
    std::this_thread::sleep_for(std::chrono::microseconds(200));  // it waits, most times
    first.reset();
    next.join();
  }
  HeldStreams::set_pauses(before);
}

// To allocate settles when memory runs out, and keeps quiet meanwhile.
TEST(HeldStreams, AreSettledForWhoKeepsThemQuiet) {
  const HeldStreams::Quiet quiet;
  EXPECT_FALSE(HeldStreams::settle(0));
  EXPECT_TRUE(std::async(std::launch::async, [] { return HeldStreams::settle(0); }).get()) << "for others";
}

TEST(HeldStreams, TellWhenNothingIsPutOffAnyMore) {
  EXPECT_FALSE(HeldStreams::settle(0)) << "nothing was";
  std::atomic<bool> freed{false};
  std::optional<Hold> hold(std::in_place);
  HeldStreams::when_none([&] { freed = true; });
  EXPECT_TRUE(HeldStreams::settle(0));
  EXPECT_FALSE(freed);
  std::thread other([&] { hold.reset(); });
  EXPECT_TRUE(HeldStreams::settle(30) || freed);
  EXPECT_TRUE(freed);
  other.join();
}

}  // namespace
}  // namespace epccl::device
