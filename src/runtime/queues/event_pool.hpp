// Events that are used again. A worker is not to make one while a call is under way: a driver may keep it out as long as another thread
// waits in it for the GPU, and so for that call (docs/cuda-streams.md); to record one and to ask it gets in.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"

namespace epccl::runtime {

/// One thread at a time.
class EventPool {
 public:
  explicit EventPool(device::Device& device) : device_(&device) {}

  /// Has so many ready at least, beside those that are taken.
  Status prepare(size_t count) {
    while (unused_.size() < count) {
      EPCCL_ASSIGN(auto made, device_->make_event());
      unused_.push_back(std::move(made));
    }
    return {};
  }

  /// Where more are taken at once than were prepared, one is made all the same.
  Result<std::unique_ptr<device::QueueEvent>> take() {
    if (unused_.empty()) return device_->make_event();
    auto event = std::move(unused_.back());
    unused_.pop_back();
    return event;
  }

  void give_back(std::unique_ptr<device::QueueEvent> event) { unused_.push_back(std::move(event)); }

 private:
  device::Device* device_;
  std::vector<std::unique_ptr<device::QueueEvent>> unused_;
};

}  // namespace epccl::runtime
