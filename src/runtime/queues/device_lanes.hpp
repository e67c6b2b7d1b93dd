// The queues of a device on which the steps of one call run: they are given steps as these become possible, in an order that only
// the past decides, and never wait for another rank.
//
// A step may be given to a queue when each step that it depends on is complete or has been given to a queue itself: queues keep
// their order, and wait for each other's events. What was given to a queue since the last close() is a batch, with an event behind it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/queues/device_program.hpp"
#include "runtime/queues/event_pool.hpp"
#include "runtime/queues/lane_queues.hpp"
#include "runtime/queues/queue_feed.hpp"
#include "runtime/queues/row_feed.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

class DeviceLanes {
 public:
  DeviceLanes(device::Device& device, const topology::Cluster& cluster);

  /// Both stay until the call is over.
  Status begin(const DeviceProgram& program, const QueueCall& call);
  /// Makes now the queues of programs of this width; `by_cores`: those that compute cores copy in. Any thread.
  Status prepare(int width, bool by_cores) {
    return queues_.prepare(width, plan::Signals::by_host, by_cores);
  }
  /// Makes now the events of usual calls. The thread of calls.
  Status prepare_events() { return events_.prepare(batches_at_first); }
  /// Gives a copy, a reduction or a step on rows to its queue.
  Status start(uint32_t step);
  /// All that was given is on its way, with events behind it.
  Status close();
  /// Adds the steps that have become complete.
  Status poll(std::vector<uint32_t>& through);
  /// Steps are under way that poll() has not given back.
  bool busy() const { return under_way_ > 0; }
  /// Waits until nothing moves any more.
  void stop();

 private:
  static constexpr size_t batches_at_first = 64;  // under way at once
  struct Batch {
    std::unique_ptr<device::QueueEvent> behind;
    std::vector<uint32_t> steps;
  };
  struct Line {
    device::Queue* queue = nullptr;
    std::vector<uint32_t> open;  // steps since the last batch
    std::deque<Batch> batches;
    uint32_t closed = 0, complete = 0;  // batches, ever
    std::vector<uint32_t> joined;       // by line: it is past the end of this many batches there
  };

  Status make_queues(const DeviceProgram& program, bool by_cores);
  Status wait_for(uint32_t step, uint16_t line);
  Status feed(uint16_t line, uint32_t step);
  std::vector<plan::Step> results_of(uint32_t sum) const;
  Status close(uint16_t line);

  QueueFeed feed_;
  RowFeed rows_;
  LaneQueues queues_;
  EventPool events_;

  // Of the current call.
  const DeviceProgram* program_ = nullptr;
  std::vector<Line> lines_;      // by queue of the program
  std::vector<uint32_t> batch_;  // by step: the number of the batch it is in, from 1; 0: not given to a queue
  size_t under_way_ = 0;
};

}  // namespace epccl::runtime
