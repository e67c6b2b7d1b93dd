// Calls on a GPU whose threads wait for them, instead of their streams: the first ones of a communicator, and all on the NULL stream.
//
// A stream that waits for a call waits for a thread of the library, which has to call the driver meanwhile. But a driver that loads a module
// waits for all streams, and lets nobody in until they go on; and programs load their kernels module by module, when they first use them:
//
//   program's thread   calls ----------------> returns | launches a kernel of a new module: its loading waits for nothing
//   stream             (nothing waits in it)           |
//   library's thread          calls the driver --> over, or all of it queued (executor/queued_behind.hpp)
//
// As with NCCL, whose first calls connect ranks, and wait for them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace epccl::runtime {

/// How far a call is. From `queued` on it needs no thread any more.
enum class CallStage : uint8_t { under_way, queued, over };

class FirstCalls {
 public:
  struct Limits {
    uint64_t calls = 0;  // EPCCL_CUDA_FIRST_CALLS; 0: no call is waited for
    // Of a thread, for ranks that have not called yet, and for the communicator's call before; the short one after it has waited in vain
    // once, until it has not, and when that has happened to so many calls: then ranks need something of a thread that has called.
    double patience_seconds = 10, short_patience_seconds = 0.05;
    int most_in_vain = 3;

    /// The calls end by that timeout: also where one thread calls for some ranks, one after the other.
    Limits within(double timeout_seconds) const {
      Limits limits = *this;
      limits.patience_seconds = std::min(patience_seconds, timeout_seconds / 4);
      return limits;
    }
  };

  explicit FirstCalls(const Limits& limits) : limits_(limits) {}

  // Any thread.
  /// Counts a call; whether its thread is to wait for it.
  bool begin(bool is_on_null_stream);
  /// Until the call is not under way any more; false: in vain. The thread is in no call of the driver.
  bool wait_for(const std::atomic<CallStage>& stage);

 private:
  double patience() const;

  const Limits limits_;
  std::atomic<uint64_t> begun_{0};
  std::atomic<int> in_vain_{0};
};

}  // namespace epccl::runtime
