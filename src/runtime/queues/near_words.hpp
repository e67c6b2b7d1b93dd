// Where the memory of a rank's device has the counters of the node's ranks, too (device::WordValue::near).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device/device.hpp"

namespace epccl::runtime {

/// One of the kernels of this process that wait at a time. A device has places for 128 kernels at once; those that wait must leave enough of
/// them to what they wait for. Any thread.
using WaitingKernel = std::shared_ptr<const void>;
/// Null: there are `most` already.
WaitingKernel take_waiting_kernel(int most);

/// Those of one call, as long as it is under way.
class NearWords {
 public:
  NearWords() = default;
  /// `of_ranks`: by local position a rank's counters, by slot; null: not there. `own`: this rank's. `waiting`: the kernel that looks at them;
  /// null: none does, they are only raised.
  NearWords(std::vector<device::SignalWord*> of_ranks, device::SignalWord* own, WaitingKernel waiting)
      : of_ranks_(std::move(of_ranks)), own_(own), waiting_(std::move(waiting)) {}

  /// This rank's, for a post; null: there is none.
  device::SignalWord* raised(int slot) const { return own_ == nullptr ? nullptr : own_ + slot; }
  /// A rank's, for the call's last wait; null: it is to wait by the driver.
  const device::SignalWord* looked_at(int local, int slot) const {
    if (waiting_ == nullptr) return nullptr;
    const device::SignalWord* const words = of_ranks_[static_cast<size_t>(local)];
    return words == nullptr ? nullptr : words + slot;
  }

 private:
  std::vector<device::SignalWord*> of_ranks_;
  device::SignalWord* own_ = nullptr;
  WaitingKernel waiting_;
};

}  // namespace epccl::runtime
