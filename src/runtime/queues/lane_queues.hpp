// A rank's queues on a device, by lane of its plans: made when first asked for, then kept. Any thread, so that who issues a call can make
// them before a stream waits for it: to make one may wait for what the device does.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "plan/queues.hpp"

namespace epccl::runtime {

class LaneQueues {
 public:
  explicit LaneQueues(device::Device& device) : device_(device) {}

  /// Of the lane, the one with that number; `by_cores`: compute cores copy in it.
  Result<device::Queue*> get(plan::Lane lane, size_t number, bool by_cores = false);
  /// Makes all that programs of this width and kind use.
  Status prepare(int width, plan::Signals signals, bool by_cores);
  std::vector<device::Queue*> all() const;
  /// When none has work.
  void clear();

 private:
  device::Device& device_;
  mutable std::mutex mutex_;
  std::array<std::vector<std::unique_ptr<device::Queue>>, 2 * plan::lanes> by_lane_;  // those of cores behind
};

}  // namespace epccl::runtime
