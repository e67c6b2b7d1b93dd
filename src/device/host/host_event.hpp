// An event of the host device: a place in a stream that threads and other streams can wait for.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "device/host/host_stream.hpp"

namespace epccl::device {

/// Any thread may call anything at any time.
class HostEvent {
 public:
  /// Marks the end of what `stream` has been given so far, in place of an earlier mark. Null: work without a stream is over
  /// when it returns, so the event is complete.
  void record(HostStream* stream);
  /// Whether the stream has come to the mark, with or without errors; true where there is none.
  bool complete() const;
  /// Waits until it has.
  void synchronize() const;
  /// What `stream` is given from now on waits until it has; null: the calling thread does.
  void hold_back(HostStream* stream) const;

 private:
  /// One record(): those who wait for it are not concerned by the next one, nor by the end of the event.
  struct Mark {
    std::atomic<int> reached = 0;
    HostStream::Watchers watchers;

    void wait() const { reached.wait(0, std::memory_order_acquire); }
  };

  std::shared_ptr<const Mark> last() const;

  mutable std::mutex mutex_;
  std::shared_ptr<const Mark> last_;  // null: complete
};

/// Events handed out through the C API, by address: unknown pointers are recognised, not dereferenced.
void* create_event();
std::shared_ptr<HostEvent> find_event(void* handle);
bool destroy_event(void* handle);

}  // namespace epccl::device
