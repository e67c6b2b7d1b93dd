// Large copies of a plan that the calling thread runs, done by a copy engine meanwhile: for plans that use the network, or
// move token rows, and so cannot be submitted to queues as a whole.
//
//   executor                         engine
//   start(step, copies)  ----------> copies; raises the rank's counter, which wakes the executor where it sleeps
//   done(): the steps in order  <---
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "base/status.hpp"
#include "device/device.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

class CopyOffload {
 public:
  CopyOffload(device::Device& device, transports::NodeMemory& node) : device_(device), node_(node) {}
  CopyOffload(const CopyOffload&) = delete;
  CopyOffload& operator=(const CopyOffload&) = delete;
  ~CopyOffload();

  /// Smaller ones are better off where they are: handing over costs more.
  static constexpr uint64_t least_bytes = 32 << 10;

  void begin(uint64_t sequence) {
    sequence_ = sequence;
    started_ = finished_ = 0;
  }
  /// The copies of a step; returns at once. On error none was started.
  Status start(uint32_t step, std::span<const device::CopyWork> copies);
  /// The next step whose copies are complete.
  std::optional<uint32_t> done();
  bool pending() const { return !steps_.empty(); }
  /// Whether done() has something, or will once the counter in reason() gets there.
  bool ready() const;
  /// The counter to sleep for.
  transports::SleepFor reason() const;
  /// Waits until nothing moves any more. Its steps are forgotten.
  void drain();

 private:
  uint64_t value(uint32_t count) const;

  device::Device& device_;
  transports::NodeMemory& node_;
  std::unique_ptr<device::Queue> queue_;  // made when first needed
  uint64_t sequence_ = 0;
  uint32_t started_ = 0, finished_ = 0;
  std::deque<uint32_t> steps_;  // under way
};

}  // namespace epccl::runtime
