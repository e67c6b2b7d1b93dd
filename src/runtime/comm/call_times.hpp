// Where the time of a communicator's calls goes, summed up while somebody measures (device/work_times.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "device/work_times.hpp"

namespace epccl::runtime {

/// Any thread may call anything.
class CallTimes {
 public:
  struct Sums {
    uint64_t calls = 0;
    device::TimeSplit seconds;
  };

  /// Calls that begin from now on are measured, or no longer are.
  void measure(bool on);
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  /// Sums since this was asked last. Error: a call could not be measured (which does not end it).
  Result<Sums> take();

  /// Makes a call on the calling thread, measured. `settle` ends what a wait of its may still count. Of a call that fails nothing is
  /// counted.
  Status run(const std::function<Status()>& work, const std::function<void()>& settle);
  /// What was done so far on this thread was not yet the call, but a wait for its turn.
  static void begin_now();

 private:
  std::shared_ptr<device::WorkTimes> borrow();

  std::atomic<bool> is_on_ = false;
  std::mutex mutex_;
  Sums sums_;
  Status failure_;
  std::vector<std::shared_ptr<device::WorkTimes>> spare_;  // with a device's events
};

}  // namespace epccl::runtime
