#include "device/work_times.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "device/device.hpp"

namespace epccl::device {
namespace {

using enum WorkKind;

void expect_split(const TimeSplit& split, double kernel, double copy, double signal, double host) {
  constexpr double little = 1e-9;
  EXPECT_NEAR(split.kernel, kernel, little);
  EXPECT_NEAR(split.copy, copy, little);
  EXPECT_NEAR(split.signal, signal, little);
  EXPECT_NEAR(split.host(), host, little);
}

TEST(WorkTimes, WhatNobodyToldIsTheHosts) {
  expect_split(split_of({}, 10, 14), 0, 0, 0, 4);
}

TEST(WorkTimes, PartsOneAfterTheOtherAddUp) {
  expect_split(split_of({{signal, 11, 12}, {kernel, 12, 15}, {copy, 16, 18}}, 10, 20), 3, 2, 1, 4);
}

TEST(WorkTimes, AMomentCountsOnceForKernelsBeforeCopiesBeforeWaits) {
  expect_split(split_of({{signal, 0, 10}, {copy, 2, 8}, {kernel, 4, 6}}, 0, 10), 2, 4, 4, 0);
}

TEST(WorkTimes, QueuesThatDoTheSameAtATimeCountOnce) {
  expect_split(split_of({{copy, 1, 4}, {copy, 2, 6}, {copy, 3, 5}}, 0, 10), 0, 5, 0, 5);
}

TEST(WorkTimes, WhatLiesOutsideOfTheCallIsCutOff) {
  expect_split(split_of({{copy, -5, 2}, {kernel, 9, 30}, {signal, 40, 50}, {signal, 5, 5}}, 0, 10), 1, 2, 0,
               7);
}

TEST(WorkTimes, BelongToTheThreadThatMeasures) {
  const auto outer = std::make_shared<WorkTimes>(), inner = std::make_shared<WorkTimes>();
  EXPECT_EQ(WorkTimes::current(), nullptr);
  {
    const WorkTimes::Scope scope(outer);
    std::thread([] { EXPECT_EQ(WorkTimes::current(), nullptr); }).join();
    {
      const WorkTimes::Scope within(inner);
      EXPECT_EQ(WorkTimes::current(), inner.get());
    }
    EXPECT_EQ(WorkTimes::current(), outer.get());
  }
  EXPECT_EQ(WorkTimes::current(), nullptr);
}

TEST(WorkTimes, ForgetWhatWasBeforeTheCall) {
  WorkTimes times;
  times.add(kernel, now_seconds() - 5, now_seconds());
  times.restart();
  const double told_from = now_seconds();
  times.add(copy, told_from, told_from + 100);
  const auto split = times.split();
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->kernel, 0);
  EXPECT_GE(split->copy, 0);
  EXPECT_LE(split->copy, split->total);
}

/// A device whose clock is `late` seconds ahead of the host's.
class LateDevice : public WorkTimes::OnDevice {
 public:
  explicit LateDevice(double late) : late_(late) {}
  Status collect(std::vector<WorkSpan>& spans) override {
    const double now = now_seconds() + late_;
    spans.push_back({kernel, now - 3e-6, now - 2e-6});
    spans.push_back({copy, now - 2e-6, now});
    return {};
  }
  void forget() override {}

 private:
  const double late_;
};

TEST(WorkTimes, WhatADeviceDidLiesWithinTheCallHoweverLateTheHostHeardOfIt) {
  for (const double late : {-1.0, 0.0, 5e-3, 1.0}) {
    WorkTimes times;
    times.restart();
    const double begun = now_seconds();
    times.on_device(&times, [late] { return std::make_unique<LateDevice>(late); });
    while (now_seconds() < begun + 1e-5) std::this_thread::yield();  // longer than what the device did
    const auto split = times.split();
    ASSERT_TRUE(split.ok());
    constexpr double little = 1e-9;
    EXPECT_NEAR(split->kernel, 1e-6, little) << late;
    EXPECT_NEAR(split->copy, 2e-6, little) << late;
  }
}

TEST(WorkTimes, EnginesOfTheHostTellWhatTheyDid) {
  const auto times = std::make_shared<WorkTimes>();
  const auto engine = host_device().make_queue(QueueKind::copy_engine),
             worker = host_device().make_queue(QueueKind::compute);
  ASSERT_TRUE(engine.ok() && worker.ok());
  std::vector<std::byte> from(1 << 20), to(1 << 20);
  std::vector<float> numbers(1 << 16, 1.5F), sum(1 << 16);
  SignalWord word{0};
  ReduceWork add;
  add.reduction.element = Element::float32;
  const ReduceSource source{reinterpret_cast<const std::byte*>(numbers.data())};
  add.sources = {&source, 1};
  add.destination = reinterpret_cast<std::byte*>(sum.data());
  add.elements = sum.size();
  const CopyWork copy_work{to.data(), from.data(), from.size()};
  times->restart();
  {
    const WorkTimes::Scope scope(times);
    ASSERT_TRUE((*engine)->wait(word, 1).ok());
    ASSERT_TRUE((*engine)->copy({&copy_work, 1}).ok());
    ASSERT_TRUE((*worker)->reduce(add).ok());
  }
  // What is queued when nobody measures is not told.
  ASSERT_TRUE((*worker)->reduce(add).ok());
  ASSERT_TRUE((*worker)->synchronize().ok());
  word.store(1);
  ASSERT_TRUE((*engine)->synchronize().ok());
  const auto split = times->split();
  ASSERT_TRUE(split.ok());
  EXPECT_GT(split->kernel, 0);
  EXPECT_GT(split->copy, 0);
  EXPECT_GT(split->signal, 0) << "the wait lasts longer than the sum";
  EXPECT_GE(split->host(), -1e-9);
}

}  // namespace
}  // namespace epccl::device
