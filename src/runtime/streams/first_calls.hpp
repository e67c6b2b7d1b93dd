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

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace epccl::runtime {

/// How far a call is. From `queued` on it needs no thread any more.
enum class CallStage : uint8_t { under_way, queued, over };

/// A call that its thread may wait for.
struct AwaitedCall {
  std::atomic<CallStage> stage{CallStage::under_way};
  std::atomic<double> left_at{0};  // when its thread has gone on without it; 0: it has not
};

class FirstCalls {
 public:
  struct Limits {
    uint64_t calls = 0;  // EPCCL_CUDA_FIRST_CALLS; 0: no call is waited for
    // Of a thread, for ranks that have not called yet, and for the communicator's call before. The short one where ranks need something of a
    // thread that has called, as it seems: for calls of other communicators after it has waited in vain for one, until it does not, or
    // so long has passed (it may call for several ranks, one after the other), and where that has happened to so many calls, which went on soon after their threads.
    double patience_seconds = 10, short_patience_seconds = 0.05, soon_seconds = 1;
    int most_in_vain = 3;
    /// Calls end by that timeout, as it is now, also where one thread calls for some ranks, one after the other: a quarter of it is
    /// the longest patience. Null: there is none.
    std::function<double()> timeout_seconds{};
  };

  explicit FirstCalls(Limits limits) : limits_(std::move(limits)) {}

  // Any thread.
  /// Counts a call; whether its thread is to wait for it.
  bool begin(bool is_on_null_stream);
  /// The longest patience for a call that is made now. Asks for the timeout, so its communicator must be there.
  double longest() const;
  /// Until the call is not under way any more; false: in vain. The thread is in no call of the driver. `longest`: what longest() said when the
  /// call was made.
  bool wait_for(AwaitedCall& call, double longest);
  /// The call is so far now.
  void reaches(AwaitedCall& call, CallStage stage);

 private:
  bool is_impatient() const;

  const Limits limits_;
  std::atomic<uint64_t> begun_{0};
  std::atomic<int> in_vain_{0};
};

}  // namespace epccl::runtime
