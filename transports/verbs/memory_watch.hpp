// Tells when memory of this process is unmapped, moved or given back, so that what devices know of it is forgotten.
//
// A device that has registered memory holds its pages. Once the program has freed it and got other pages at the same address, it
// would read and write the old ones. The kernel (userfaultfd) reports such changes of watched ranges, and does not let the call
// that makes one return before the report has been read; nothing in the C library has to be replaced for that.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace epccl::transports::verbs {

class MemoryWatch {
 public:
  struct Range {
    uintptr_t begin = 0, end = 0;
  };

  /// The process's one; null where the kernel has no such reports or does not permit them.
  static MemoryWatch* get();

  /// Watches whole pages, until they are unmapped. False: this memory cannot be watched.
  bool watch(Range pages);

  /// Where a reader that has read nothing begins.
  uint64_t now() const { return written_.load(std::memory_order_acquire); }
  /// Calls `forget(range)` for what has changed since `*position`, and moves it on. Everything that happened before in this
  /// thread, or that it knows of, is told. False: there was more than is kept, everything may have changed.
  template <typename Forget>
  bool catch_up(uint64_t& position, Forget forget) const {
    // A report that has been read and not yet noted: its reader needs no lock and no memory for that.
    while (reading_.load(std::memory_order_seq_cst)) sched_yield();
    const uint64_t begin = std::exchange(position, written_.load(std::memory_order_acquire));
    if (position - begin >= changes_.size() / 2) return false;
    for (uint64_t i = begin; i < position; ++i) forget(change(i));
    // That takes its time: others may have written over what was still to be read.
    std::atomic_thread_fence(std::memory_order_acquire);
    return written_.load(std::memory_order_relaxed) - begin < changes_.size();
  }

 private:
  struct Change {
    std::atomic<uintptr_t> begin = 0, end = 0;
  };

  explicit MemoryWatch(int fd) : fd_(fd) {}
  static MemoryWatch* start();
  void read_for_ever();
  void note(Range range);
  Range change(uint64_t number) const {
    const Change& change = changes_[number % changes_.size()];
    return {change.begin.load(std::memory_order_relaxed), change.end.load(std::memory_order_relaxed)};
  }

  const UniqueFd fd_;
  std::atomic<bool> reading_ = false;
  std::atomic<uint64_t> written_ = 0;
  std::array<Change, 4096> changes_{};
};

}  // namespace epccl::transports::verbs
