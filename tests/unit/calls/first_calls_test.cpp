#include "runtime/comm/first_calls.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace epccl::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_in_vain(FirstCalls& calls) {
  const std::atomic<CallStage> never{CallStage::under_way};
  const auto began = Clock::now();
  EXPECT_FALSE(calls.wait_for(never));
  return std::chrono::duration<double>(Clock::now() - began).count();
}

void wait_in_time(FirstCalls& calls) {
  const std::atomic<CallStage> stage{CallStage::over};
  EXPECT_TRUE(calls.wait_for(stage));
}

TEST(FirstCalls, AreSoMany) {
  FirstCalls calls({.calls = 2});
  EXPECT_TRUE(calls.begin(false));
  EXPECT_TRUE(calls.begin(false));
  EXPECT_FALSE(calls.begin(false));
  EXPECT_TRUE(calls.begin(true)) << "on the NULL stream all are waited for";
}

TEST(FirstCalls, AreNoneWhereNoneAreWished) {
  FirstCalls calls({.calls = 0});
  EXPECT_FALSE(calls.begin(false));
  EXPECT_FALSE(calls.begin(true));
}

void expect_wait_until(CallStage end) {
  FirstCalls calls({.calls = 1});
  std::atomic<CallStage> stage{CallStage::under_way};
  int written = 0;
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    written = 1;
    stage.store(end, std::memory_order_release);
  });
  EXPECT_TRUE(calls.wait_for(stage));
  EXPECT_EQ(written, 1);
  ends.join();
}

TEST(FirstCalls, AreWaitedForUntilTheyAreOver) {
  expect_wait_until(CallStage::over);
}

TEST(FirstCalls, OrQueued) {
  expect_wait_until(CallStage::queued);
}

// It may call for several ranks, one after the other.
TEST(FirstCalls, AreNotWaitedForLongByAThreadThatHasWaitedInVain) {
  const FirstCalls::Limits limits{.calls = 9, .patience_seconds = 0.3, .short_patience_seconds = 0.001};
  FirstCalls first(limits), second(limits);
  EXPECT_GE(seconds_in_vain(first), 0.3);
  EXPECT_LT(seconds_in_vain(second), 0.3);
  wait_in_time(second);
  EXPECT_GE(seconds_in_vain(second), 0.3);
  wait_in_time(second);
}

TEST(FirstCalls, AreNotWaitedForLongAfterSomeInVain) {
  FirstCalls calls({.calls = 9, .patience_seconds = 0.3, .short_patience_seconds = 0.001, .most_in_vain = 2});
  for (int i = 0; i < 2; ++i) {
    EXPECT_GE(seconds_in_vain(calls), 0.3);
    wait_in_time(calls);
  }
  EXPECT_LT(seconds_in_vain(calls), 0.3);
  wait_in_time(calls);
}

TEST(FirstCalls, AreOverBeforeTheyEndByTheTimeout) {
  EXPECT_EQ(FirstCalls::Limits{.calls = 1}.within(2).patience_seconds, 0.5);
  EXPECT_EQ(FirstCalls::Limits{.calls = 1}.within(1800).patience_seconds, 10);
}

}  // namespace
}  // namespace epccl::runtime
