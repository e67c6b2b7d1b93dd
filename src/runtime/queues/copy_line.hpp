// Copies on a queue of their own, of which the host wants to know when each is through.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/queues/event_pool.hpp"

namespace epccl::runtime {

class CopyLine {
 public:
  static Result<CopyLine> make(device::Device& device);

  /// Who makes the copies from now on: an engine, or compute cores, where the device can, with so many blocks (as Queue::set_blocks()).
  /// None may be under way.
  void use_cores(bool cores, int blocks = 0);
  /// Queued by the next flush(); `token` is what poll() gives back.
  void add(const device::CopyWork& work, uint64_t token);
  /// Queues what was added, as one list.
  Status flush();
  /// Adds the tokens of copies that have become complete.
  Status poll(std::vector<uint64_t>& through);
  /// Whether there are copies that poll() has not given back.
  bool busy() const { return !added_.empty() || !batches_.empty(); }
  /// Waits until nothing moves any more; the tokens are forgotten.
  void drain();

 private:
  struct Batch {
    std::unique_ptr<device::QueueEvent> behind;
    std::vector<uint64_t> tokens;
  };

  explicit CopyLine(device::Device& device) : events_(device) {}

  std::unique_ptr<device::Queue> engine_, cores_;  // cores_ is null where the device cannot
  device::Queue* queue_ = nullptr;                 // one of them
  EventPool events_;
  std::vector<device::CopyWork> copies_;
  std::vector<uint64_t> added_;  // tokens
  std::deque<Batch> batches_;
};

}  // namespace epccl::runtime
