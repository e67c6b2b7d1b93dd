// A rank's scratch on a device, and behind it the counters of its queues as peers on the same GPU see them soonest:
//
//   | of calls 0, n, ... | of calls 1, n + 1, ... | ... | near words: the rank's counters, by slot |
//
// The rank's queues, if they use near words, raise one before each counter of the node's memory, which alone says what holds
// (device::WordValue::near). Peers may look there when the rank's call is over and its communicator gone: those of its process hold the
// memory, for other processes their mapping does. One thread at a time, that of calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/streams/device_rooms.hpp"

namespace epccl::runtime {

class DeviceScratch {
 public:
  DeviceScratch(device::Device& device, int local_size)
      : device_(device), zeros_(device), held_(static_cast<size_t>(local_size)) {}

  /// `call_bytes` for each of `calls` that may be under way.
  Status make(uint64_t call_bytes, uint64_t calls);
  /// Has the queue clear the near words. Waits for nothing: in the device's order that may come after what waits for a thread.
  Status clear_near_words(device::Queue& queue);
  /// Whether they are clear.
  bool has_near_words();

  bool is_made() const { return memory_ != nullptr; }
  std::byte* data() const { return memory_.get(); }
  uint64_t bytes() const { return bytes_with_near_words() - near_bytes; }
  uint64_t bytes_with_near_words() const { return calls_ * call_bytes_ + near_bytes; }

  // Of any rank's, which begins at `base`.
  std::byte* of_call(std::byte* base, uint64_t sequence) const {
    return base + sequence % calls_ * call_bytes_;
  }
  /// transports::node_counters of them, by slot.
  device::SignalWord* near_words(std::byte* base) const {
    return reinterpret_cast<device::SignalWord*>(base + calls_ * call_bytes_);
  }

  /// Holds that of a rank of this process, which says that it begins at `address`, as long as this is there. False: it is gone. `is_there`:
  /// whether the rank cannot be gone yet; asked behind, since other memory may begin there then.
  bool hold(int local, const void* address, const std::function<bool()>& is_there);

 private:
  static const uint64_t near_bytes;

  device::Device& device_;
  uint64_t call_bytes_ = 0, calls_ = 1;
  std::shared_ptr<std::byte> memory_;
  DeviceRoom zeros_;
  std::unique_ptr<device::QueueEvent> cleared_;
  bool is_clear_ = false;
  std::vector<std::shared_ptr<const void>> held_;  // by local position
};

}  // namespace epccl::runtime
