// A stream of the host device: an ordered queue of work and the thread that runs it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/status.hpp"

namespace epccl::device {

class HostStream {
 public:
  using Work = std::function<Status()>;

  HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  /// Runs what is queued, then ends the thread.
  ~HostStream();
  /// The same in a thread of its own, for who must not wait. Where there is none to be had the stream stays.
  static void end_elsewhere(std::unique_ptr<HostStream> stream);

  /// Queues work; it runs after all work queued before, in the stream's thread. What it throws counts as its error.
  void enqueue(Work work);
  /// Waits until the queue is empty and idle; returns and forgets the first error since the last call.
  Status synchronize();
  bool idle() const;

  /// Says, while it lives, that a thread waits for work of a stream. May outlive the stream.
  class Watch;
  using Watchers = std::shared_ptr<std::atomic<int>>;
  const Watchers& watchers() const { return watchers_; }

  /// Whether the calling thread is a stream's, and no thread waits for that stream: then time is cheaper than cores, which
  /// the program computes on meanwhile.
  static bool runs_unwatched();

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable wake_, drained_;
  std::deque<Work> queue_;
  bool busy_ = false, stop_ = false;
  const Watchers watchers_ = std::make_shared<std::atomic<int>>(0);
  Status first_error_;
  std::thread thread_;
};

class HostStream::Watch {
 public:
  /// Null: nothing to watch.
  explicit Watch(Watchers watchers) : watchers_(std::move(watchers)) {
    if (watchers_ != nullptr) watchers_->fetch_add(1, std::memory_order_relaxed);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    if (watchers_ != nullptr) watchers_->fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  const Watchers watchers_;
};

/// Streams handed out through the C API, by address: unknown pointers are recognised, not dereferenced.
HostStream* create_stream();
HostStream* find_stream(void* handle);
bool destroy_stream(void* handle);

}  // namespace epccl::device
