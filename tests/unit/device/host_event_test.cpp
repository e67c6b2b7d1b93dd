#include "device/host/host_event.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <optional>
#include <thread>
#include <vector>

namespace epccl::device {
namespace {

/// Work that ends when the test says so.
class Gate {
 public:
  HostStream::Work work(Status result = {}) {
    return [this, result] {
      opened_.wait();
      return result;
    };
  }
  void open() { opened_.count_down(); }

 private:
  std::latch opened_{1};
};

HostStream::Work append(std::vector<int>& list, int value) {
  return [&list, value]() -> Status {
    list.push_back(value);
    return {};
  };
}

TEST(HostEvent, ThatWasNeverRecordedIsComplete) {
  HostEvent event;
  HostStream stream;
  EXPECT_TRUE(event.complete());
  event.synchronize();
  event.hold_back(&stream);
  event.hold_back(nullptr);
  EXPECT_TRUE(stream.synchronize().ok());
}

TEST(HostEvent, IsCompleteWhenTheWorkBeforeItIsOver) {
  Gate gate, later;
  HostEvent event;
  HostStream stream;
  stream.enqueue(gate.work());
  event.record(&stream);
  stream.enqueue(later.work());  // does not count
  EXPECT_FALSE(event.complete());
  gate.open();
  event.synchronize();
  EXPECT_TRUE(event.complete());
  EXPECT_FALSE(stream.idle());
  later.open();
}

TEST(HostEvent, WithoutAStreamIsCompleteAtOnce) {
  Gate gate;
  HostEvent event;
  HostStream stream;
  stream.enqueue(gate.work());
  event.record(&stream);
  event.record(nullptr);
  EXPECT_TRUE(event.complete());
  gate.open();
}

TEST(HostEvent, OrdersTwoStreams) {
  std::vector<int> order;  // written by one stream after the other
  Gate gate;
  HostEvent first_done, second_done;
  HostStream first, second;
  first.enqueue(gate.work());
  first.enqueue(append(order, 1));
  first_done.record(&first);
  first_done.hold_back(&second);
  second.enqueue(append(order, 2));
  second_done.record(&second);
  second_done.hold_back(&first);
  first.enqueue(append(order, 3));
  EXPECT_FALSE(second.idle());
  gate.open();
  EXPECT_TRUE(first.synchronize().ok());
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
}

TEST(HostEvent, IsWaitedForAsItWasWhenTheWaitBegan) {
  Gate first, second;
  HostEvent event;
  HostStream stream, waiting;
  stream.enqueue(first.work());
  event.record(&stream);
  event.hold_back(&waiting);
  stream.enqueue(second.work());
  event.record(&stream);
  first.open();
  EXPECT_TRUE(waiting.synchronize().ok());  // the second record does not concern it
  EXPECT_FALSE(event.complete());
  second.open();
  event.synchronize();
}

TEST(HostEvent, ServesAllWhoWait) {
  constexpr int threads = 8;
  Gate gate;
  HostEvent event;
  HostStream stream;
  std::atomic<int> through = 0;
  stream.enqueue(gate.work());
  event.record(&stream);
  std::vector<std::thread> waiting;
  for (int i = 0; i < threads; ++i)
    waiting.emplace_back([&] {
      event.synchronize();
      ++through;
    });
  EXPECT_EQ(through, 0);
  gate.open();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(through, threads);
}

TEST(HostEvent, MayGoWhileOthersWaitForIt) {
  std::vector<int> order;
  Gate gate;
  HostStream stream, waiting;
  auto event = std::make_optional<HostEvent>();
  stream.enqueue(gate.work());
  stream.enqueue(append(order, 1));
  event->record(&stream);
  event->hold_back(&waiting);
  waiting.enqueue(append(order, 2));
  event.reset();
  gate.open();
  EXPECT_TRUE(waiting.synchronize().ok());
  EXPECT_EQ(order, (std::vector{1, 2}));
}

TEST(HostEvent, OutlivesItsStream) {
  Gate gate;
  HostEvent event;
  {
    HostStream stream;
    stream.enqueue(gate.work());
    event.record(&stream);
    gate.open();
  }
  event.synchronize();
  EXPECT_TRUE(event.complete());
}

TEST(HostEvent, CompletesAfterFailedWorkAndLeavesTheErrorToTheStream) {
  Gate gate;
  HostEvent event;
  HostStream stream, waiting;
  stream.enqueue(gate.work({Code::system_error, "it failed"}));
  event.record(&stream);
  event.hold_back(&waiting);
  gate.open();
  event.synchronize();
  EXPECT_TRUE(waiting.synchronize().ok());
  EXPECT_EQ(stream.synchronize().message(), "it failed");
}

TEST(HostEvent, ThatAThreadWaitsForMakesItsStreamAWatchedOne) {
  HostEvent event;
  HostStream stream;
  stream.enqueue([]() -> Status {
    while (HostStream::runs_unwatched()) std::this_thread::yield();
    return {};
  });
  event.record(&stream);
  event.synchronize();  // or this would never return
  EXPECT_TRUE(event.complete());
}

TEST(HostEvent, HandlesAreRecognised) {
  void* handle = create_event();
  EXPECT_NE(find_event(handle), nullptr);
  EXPECT_EQ(find_event(&handle), nullptr);
  EXPECT_TRUE(destroy_event(handle));
  EXPECT_FALSE(destroy_event(handle));
  EXPECT_EQ(find_event(handle), nullptr);
}

}  // namespace
}  // namespace epccl::device
