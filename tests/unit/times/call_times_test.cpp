// What is kept of each call, for ranks to compare.
#include "runtime/times/call_times.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.hpp"

namespace epccl::runtime {
namespace {

constexpr double millisecond = 1e-3;

void pass(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// A communicator's turns, as far as its times see them.
class Turns {
 public:
  explicit Turns(size_t most_records = 8) : times(false, most_records) {}

  /// A call in which every rank waits for all.
  void call(double waits = 0, double works = 0) {
    run([&] {
      CallTimes::all_wait_for_all(++sequence_);
      wait(waits);
      pass(works);
    });
  }
  /// One in which not.
  void messages(double waits) {
    run([&] { wait(waits); });
  }
  void run(const std::function<void()>& work, bool in_order = true) {
    const Status status = times.run(
        [&]() -> Status {
          work();
          return {};
        },
        [] {}, in_order);
    EXPECT_TRUE(status.ok());
  }
  /// As a Waiter tells it.
  static void wait(double seconds) {
    if (seconds == 0) return;
    const double begin = now_seconds();
    pass(seconds);
    const double end = now_seconds();
    for (auto* each = device::WorkTimes::current(); each != nullptr; each = each->outer())
      each->add(device::WorkKind::signal, begin, end);
  }

  CallTimes times;

 private:
  uint64_t sequence_ = 0;
};

TEST(CallRecords, SayWhereTheTimeSinceTheCallBeforeWent) {
  Turns turns;
  turns.times.measure(true);
  turns.call();
  pass(20 * millisecond);
  turns.call(30 * millisecond, 10 * millisecond);
  const std::vector<CallRecord> records = turns.times.take_records();
  ASSERT_EQ(records.size(), 1U) << "the first only says since when";
  EXPECT_EQ(records[0].sequence, 2U);
  EXPECT_GE(records[0].between, 20 * millisecond);
  EXPECT_GE(records[0].waited, 30 * millisecond);
  EXPECT_GE(records[0].own, 10 * millisecond);
  EXPECT_EQ(records[0].waited_before, 0);
  EXPECT_TRUE(turns.times.take_records().empty());
}

TEST(CallRecords, OfWhatLiesBetweenKnowWhatWasWaitedForInOtherCalls) {
  Turns turns;
  turns.times.measure(true);
  turns.call();
  turns.messages(20 * millisecond);
  turns.run(
      [&] {
        CallTimes::all_wait_for_all(100);
        turns.wait(10 * millisecond);
      },
      false);
  EXPECT_EQ(turns.times.comparable(), 1U) << "a replay is none of them, whatever it does";
  turns.call();
  const std::vector<CallRecord> records = turns.times.take_records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].sequence, 2U);
  EXPECT_GE(records[0].waited_before, 30 * millisecond);
  EXPECT_LT(records[0].waited, 10 * millisecond);
}

TEST(CallRecords, AreTheLastOnesInTheirOrder) {
  Turns turns(4);
  turns.times.measure(true);
  for (int call = 0; call < 11; ++call) turns.call();
  EXPECT_EQ(turns.times.comparable(), 11U);
  std::vector<uint64_t> sequences;
  for (const CallRecord& record : turns.times.take_records()) sequences.push_back(record.sequence);
  EXPECT_EQ(sequences, (std::vector<uint64_t>{8, 9, 10, 11}));
  EXPECT_EQ(turns.times.comparable(), 0U);
}

// Who has just met the others counts from there on, and not what it did in the call in which they met.
TEST(CallRecords, BeginWhereRanksHaveMet) {
  Turns turns;
  turns.times.measure(true);
  turns.call();
  turns.run([&] {
    turns.times.take_records();
    turns.wait(50 * millisecond);
    turns.times.ranks_have_met();
  });
  pass(20 * millisecond);
  turns.call();
  const std::vector<CallRecord> records = turns.times.take_records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_GE(records[0].between, 20 * millisecond);
  EXPECT_EQ(records[0].waited_before, 0);
}

// One thread has the turns of two communicators at once, as for a group of messages on both: it waits for both.
TEST(CallRecords, OfATurnWithinAnotherWaitInBoth) {
  Turns outer, inner;
  for (Turns* turns : {&outer, &inner}) {
    turns->times.measure(true);
    turns->call();
  }
  outer.run([&] { inner.messages(20 * millisecond); });
  for (Turns* turns : {&outer, &inner}) {
    turns->call();
    const std::vector<CallRecord> records = turns->times.take_records();
    ASSERT_EQ(records.size(), 1U);
    EXPECT_GE(records[0].waited_before, 20 * millisecond);
  }
}

TEST(CallRecords, AreKeptWhereNobodyHasAskedForSumsAndSumsAreNot) {
  CallTimes times(true, 4);
  uint64_t sequence = 0;
  const auto call = [&] {
    const auto work = [&]() -> Status {
      CallTimes::all_wait_for_all(++sequence);
      return {};
    };
    EXPECT_TRUE(times
                    .run(
                        work, [] {}, true)
                    .ok());
  };
  ASSERT_TRUE(times.is_on());
  call();
  call();
  EXPECT_EQ(times.take()->calls, 0U);
  times.measure(true);
  call();
  times.measure(false);
  EXPECT_TRUE(times.is_on());
  call();
  EXPECT_EQ(times.take()->calls, 1U);
  EXPECT_EQ(times.take_records().size(), 3U) << "of measuring anew nothing was to begin anew";
}

}  // namespace
}  // namespace epccl::runtime
