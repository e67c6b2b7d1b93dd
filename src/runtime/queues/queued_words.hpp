// Counters of a node's ranks that their queues raise and wait for. On a GPU a wait is not queued before what ends it, by whichever rank, since
// streams share hardware queues (queue_executor.hpp); so who has queued a post says so in the node's memory.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/executor/waiter.hpp"
#include "runtime/queues/near_words.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

class QueuedWords {
 public:
  QueuedWords(transports::NodeMemory& node, const device::Device& device)
      : node_(node), in_order_(device.kind() != device::DeviceKind::host) {}

  device::SignalWord& word(int local, int slot) const { return node_.segment().counter(local, slot); }

  /// Whether a wait for that may be queued.
  bool is_queued(int local, int slot, uint64_t value) const {
    return !in_order_ || node_.counter(local, slot) >= value ||
           node_.segment().queued(local, slot).load(std::memory_order_acquire) >= value;
  }
  /// A wait, once it may be queued. `describe`: of Waiter::nap().
  template <typename Describe>
  Result<device::WordValue> wait_for(int local, int slot, uint64_t value, Waiter& waiter,
                                     Describe describe) const {
    while (!is_queued(local, slot, value)) EPCCL_TRY(waiter.nap(describe, Waiter::For::others));
    waiter.moved();
    return device::WordValue{&word(local, slot), value};
  }

  /// A post of this rank's. Who has queued it tells.
  device::WordPost post_of(int slot, uint64_t value, const NearWords& near) const {
    return {&word(node_.local(), slot), value, near.raised(slot)};
  }
  void tell(int slot, uint64_t value) const {
    if (in_order_) node_.segment().queued(node_.local(), slot).store(value, std::memory_order_release);
  }
  /// Queues waits and such a post behind them, and tells.
  Status post_after(device::Queue& queue, std::span<const device::WordValue> waits, int slot, uint64_t value,
                    const NearWords& near) const {
    const device::WordPost post = post_of(slot, value, near);
    EPCCL_TRY(queue.post_after(waits, {&post, 1}));
    tell(slot, value);
    return {};
  }

 private:
  transports::NodeMemory& node_;
  const bool in_order_;
};

}  // namespace epccl::runtime
