// Pinned host memory in slots of equal size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"

namespace epccl::runtime {

class PinnedSlots {
 public:
  explicit PinnedSlots(device::Device& device) : device_(device) {}
  PinnedSlots(const PinnedSlots&) = delete;
  PinnedSlots& operator=(const PinnedSlots&) = delete;
  ~PinnedSlots() {
    if (memory_ != nullptr) static_cast<void>(device_.free(memory_));
  }

  /// Once.
  Status reserve(uint64_t bytes) {
    EPCCL_ASSIGN(void* memory, device_.allocate(device::MemoryKind::pinned, bytes));
    memory_ = static_cast<std::byte*>(memory);
    bytes_ = bytes;
    return {};
  }
  /// All slots are free then, and hold `slot_bytes` each, which is at most what was reserved.
  void cut(uint64_t slot_bytes) {
    free_.clear();
    for (uint64_t end = bytes_ / slot_bytes * slot_bytes; end > 0; end -= slot_bytes)
      free_.push_back(memory_ + end - slot_bytes);
  }
  size_t available() const { return free_.size(); }
  /// One of those available.
  std::byte* take() {
    std::byte* slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(std::byte* slot) { free_.push_back(slot); }

 private:
  device::Device& device_;
  std::byte* memory_ = nullptr;
  uint64_t bytes_ = 0;
  std::vector<std::byte*> free_;
};

}  // namespace epccl::runtime
