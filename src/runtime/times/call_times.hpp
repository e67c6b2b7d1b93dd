// Where the time of a communicator's calls goes, while somebody measures (device/work_times.hpp): summed up for this rank's program, and call by
// call for a comparison of the ranks (lateness.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "device/work_times.hpp"
#include "runtime/times/lateness.hpp"

namespace epccl::runtime {

/// Any thread may call anything.
class CallTimes {
 public:
  struct Sums {
    uint64_t calls = 0;
    device::TimeSplit seconds;
  };

  /// `always`: calls are measured whatever measure() says. The last `most_records` are kept for a comparison.
  CallTimes(bool always, size_t most_records)
      : always_(always), most_records_(most_records), is_on_(always) {}

  /// Calls that begin from now on are measured, or no longer are.
  void measure(bool on);
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  /// Sums of what measure() asked for since this was asked last. Error: a call could not be measured (which does not end it).
  Result<Sums> take();

  /// Makes a call on the calling thread, measured. `settle` ends what a wait of its may still count. Of a call that fails nothing is counted.
  /// `in_order`: all ranks make it between the same others; a replay comes when its stream does.
  Status run(const std::function<Status()>& work, const std::function<void()>& settle, bool in_order);
  /// What was done so far on this thread was not yet the call, but a wait for its turn.
  static void begin_now();
  /// In the call that is made on this thread every rank waits for all: who comes late waits least. `sequence`: by which ranks know it, growing
  /// from call to call; if it is told several, the last. Of other calls the waits say nothing of who came late.
  static void all_wait_for_all(uint64_t sequence);

  /// Calls that ranks can compare, since take_records(): equally many on all ranks.
  uint64_t comparable() const { return comparable_.load(std::memory_order_relaxed); }
  std::vector<CallRecord> take_records();
  /// Here all ranks did, so that what they do from now on counts for the next call. Otherwise records begin with the end of a call.
  void ranks_have_met();

 private:
  /// Between two calls that ranks can compare.
  struct Interval {
    double between = 0, own = 0, waited = 0;
  };

  std::shared_ptr<device::WorkTimes> borrow();
  Status end_of_call(const std::shared_ptr<device::WorkTimes>& times, bool in_order);
  void note(const device::WorkTimes& times, const device::TimeSplit& split, uint64_t sequence);
  void keep(const CallRecord& record);
  void begin_records();

  const bool always_;
  const size_t most_records_;
  std::atomic<bool> is_on_;
  std::atomic<uint64_t> comparable_ = 0;
  std::mutex mutex_;
  bool sums_up_ = false;
  Sums sums_;
  Status failure_;
  std::vector<std::shared_ptr<device::WorkTimes>> spare_;  // with a device's events

  std::vector<CallRecord> records_;  // a ring, once it is full
  size_t oldest_ = 0;
  Interval interval_;
  double end_of_last_ = 0;  // call; 0: there is none that was measured whole
};

}  // namespace epccl::runtime
