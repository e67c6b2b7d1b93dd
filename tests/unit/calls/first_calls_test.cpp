#include "runtime/streams/first_calls.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

namespace epccl::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than a busy machine keeps a thread from running.
constexpr double long_wait = 3;

/// Of `patience` seconds, and next to none where that is short.
FirstCalls::Limits limits(double patience, int most_in_vain = 3, double soon = 5 * long_wait) {
  return {.calls = 9,
          .patience_seconds = patience,
          .short_patience_seconds = 0.001,
          .soon_seconds = soon,
          .most_in_vain = most_in_vain};
}

double seconds_in_vain(FirstCalls& calls, AwaitedCall& call) {
  const auto began = Clock::now();
  EXPECT_FALSE(calls.wait_for(call, calls.longest()));
  return std::chrono::duration<double>(Clock::now() - began).count();
}

/// For one that its thread keeps from going on.
double seconds_in_vain(FirstCalls& calls) {
  AwaitedCall call;
  const double seconds = seconds_in_vain(calls, call);
  calls.reaches(call, CallStage::queued);
  calls.reaches(call, CallStage::over);
  return seconds;
}

void wait_in_time(FirstCalls& calls) {
  AwaitedCall call;
  calls.reaches(call, CallStage::over);
  EXPECT_TRUE(calls.wait_for(call, calls.longest()));
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
  AwaitedCall call;
  int written = 0;
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    written = 1;
    calls.reaches(call, end);
  });
  EXPECT_TRUE(calls.wait_for(call, calls.longest()));
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
  FirstCalls first(limits(long_wait)), second(limits(long_wait));
  EXPECT_GE(seconds_in_vain(first), long_wait);
  EXPECT_LT(seconds_in_vain(second), long_wait);
  wait_in_time(second);
  EXPECT_GE(seconds_in_vain(second), long_wait);
  wait_in_time(second);
}

TEST(FirstCalls, AreNotWaitedForLongAfterSomeThatTheirThreadsKeptFromGoingOn) {
  FirstCalls calls(limits(long_wait, 2));
  for (int i = 0; i < 2; ++i) {
    EXPECT_GE(seconds_in_vain(calls), long_wait);
    wait_in_time(calls);
  }
  EXPECT_LT(seconds_in_vain(calls), long_wait);
  wait_in_time(calls);
}

// A rank that writes a checkpoint, say.
TEST(FirstCalls, AreWaitedForLongAlsoAfterSomeWhoseRanksWereLate) {
  FirstCalls calls(limits(0.1, 1, 0.05));
  for (int i = 0; i < 3; ++i) {
    AwaitedCall late;
    EXPECT_GE(seconds_in_vain(calls, late), 0.1);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    calls.reaches(late, CallStage::over);
  }
  wait_in_time(calls);
}

// All of them go on when that rank comes.
TEST(FirstCalls, AreWaitedForLongAlsoAfterABurstThatWaitedForALateRank) {
  FirstCalls calls(limits(0.1, 2, 0.05));
  std::array<AwaitedCall, 3> burst;
  for (AwaitedCall& call : burst) EXPECT_GE(seconds_in_vain(calls, call), 0.1);
  for (AwaitedCall& call : burst) calls.reaches(call, CallStage::over);
  EXPECT_GE(seconds_in_vain(calls), 0.1);
  wait_in_time(calls);
}

TEST(FirstCalls, AreWaitedForLongAgainAfterOneWhoseRanksWereLateButCame) {
  FirstCalls calls(limits(long_wait, 2));
  EXPECT_GE(seconds_in_vain(calls), long_wait);
  AwaitedCall late;
  std::thread comes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    calls.reaches(late, CallStage::over);
  });
  EXPECT_TRUE(calls.wait_for(late, calls.longest()));
  comes.join();
  for (int i = 0; i < 2; ++i) EXPECT_GE(seconds_in_vain(calls), long_wait);
  EXPECT_LT(seconds_in_vain(calls), long_wait);
  wait_in_time(calls);
}

TEST(FirstCalls, AreOverBeforeTheyEndByTheTimeout) {
  double timeout = 4 * long_wait;
  FirstCalls calls({.calls = 9, .soon_seconds = 0, .timeout_seconds = [&] { return timeout; }});
  EXPECT_GE(seconds_in_vain(calls), long_wait);
  timeout = 0.4;
  EXPECT_LT(seconds_in_vain(calls), long_wait);
  wait_in_time(calls);
}

}  // namespace
}  // namespace epccl::runtime
