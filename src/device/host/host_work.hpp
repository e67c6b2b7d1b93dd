// What a queue of the host device is made of; see host_engines.hpp for who does it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <variant>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/work_times.hpp"

namespace epccl::device {

/// Whether a queue has come to a place: one record() of an event.
struct HostMark {
  std::atomic<bool> reached = false;
};

struct CopyItem {
  std::vector<CopyWork> copies;
};
struct ReduceItem {
  ReduceWork work;  // its sources and further places are those below
  std::vector<ReduceSource> sources;
  std::vector<std::byte*> also;
};
struct PostItem {
  SignalWord* word;
  uint64_t value;
};
struct WaitItem {
  const SignalWord* word;
  uint64_t value;
};
struct MarkItem {
  std::shared_ptr<HostMark> mark;
};
struct WaitMarkItem {
  std::shared_ptr<const HostMark> mark;
};
using WorkItem = std::variant<CopyItem, ReduceItem, PostItem, WaitItem, MarkItem, WaitMarkItem>;

/// An item, and who wants to know how long it takes; null: nobody.
struct QueuedItem {
  WorkItem item;
  std::shared_ptr<WorkTimes> times;
};

/// One queue. All of it belongs to the mutex of the engines.
struct WorkLine {
  QueueKind kind = QueueKind::copy_engine;
  std::deque<QueuedItem> items;
  double first_since = 0;  // since when the first item is that, where somebody wants to know
  bool running = false;    // an engine has taken the first item out
  Status failure;
  std::condition_variable drained;
};

/// Raises a word; a value above stays.
inline void raise(SignalWord& word, uint64_t value) {
  uint64_t now = word.load(std::memory_order_relaxed);
  while (now < value &&
         !word.compare_exchange_weak(now, value, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

/// What a wait ends with where it was let through.
Status released_failure();

/// Raises a word, and tells who wants to know (HostDevice::tell_of_posts).
void post_and_tell(SignalWord& word, uint64_t value);

}  // namespace epccl::device
