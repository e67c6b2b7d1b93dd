// A stream of the host device: an ordered queue of work and the thread that runs it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

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

  /// Queues work; it runs after all work queued before, in the stream's thread.
  void enqueue(Work work);
  /// Waits until the queue is empty and idle; returns and forgets the first error since the last call.
  Status synchronize();
  bool idle() const;

  /// Whether the calling thread is a stream's, and no thread waits for that stream: then time is cheaper than cores, which
  /// the program computes on meanwhile.
  static bool runs_unwatched();

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable wake_, drained_;
  std::deque<Work> queue_;
  bool busy_ = false, stop_ = false;
  std::atomic<int> watchers_ = 0;  // threads in synchronize()
  Status first_error_;
  std::thread thread_;
};

/// Streams handed out through the C API, by address: unknown pointers are recognised, not dereferenced.
HostStream* create_stream();
HostStream* find_stream(void* handle);
bool destroy_stream(void* handle);

}  // namespace epccl::device
