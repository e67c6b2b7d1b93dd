// Which call of a device's driver each thread is in, for other threads to see: a driver may keep a call for as long as the device works.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace epccl::device {

class DriverCall {
 public:
  /// Of one thread, which alone writes it. Never destroyed; the next thread's when that one has ended.
  struct Trace {
    std::atomic<const char*> name{nullptr};  // of the call that it is in; null: none
    std::atomic<uint64_t> begun{0};          // calls, ever
  };
  static Trace& of_this_thread();

  /// The thread is in a call while this lives. `name` is a static text.
  explicit DriverCall(const char* name) : trace_(of_this_thread()) {
    trace_.begun.store(trace_.begun.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    trace_.name.store(name, std::memory_order_release);
  }
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;
  ~DriverCall() { trace_.name.store(nullptr, std::memory_order_release); }

 private:
  Trace& trace_;
};

/// Locks what another thread keeps while it is in a call of the driver. `name`, a static text: what this one waits for meanwhile.
inline std::unique_lock<std::mutex> lock_as_a_call(std::mutex& mutex, const char* name) {
  const DriverCall waiting(name);
  return std::unique_lock(mutex);
}

}  // namespace epccl::device
