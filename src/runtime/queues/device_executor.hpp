// Runs a rank's plan on a device's memory where there are several nodes: copies and sums by the device's queues, messages by the
// network. The calling thread drives it: it posts and waits for the node's counters, starts what has become possible, and sleeps
// where nothing is under way on the device.
//
//   this rank            queues                       network                     a peer of the node
//   start   ---------->  copy  \   in order, beside
//                        reduce /  other queues'
//   event complete  <--  event
//   post    ------------------------------------------------------------------>   wait: it sees what was copied
//   send    ----------------------------------------> (device_messages.hpp)
//   recv complete  <---------------------------------
//
// A copy or a reduction follows another one without the host, queue by queue. What is complete for the host is visible to whoever
// learns of it: an event says that all before it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/executor/pending_waits.hpp"
#include "runtime/executor/ready_steps.hpp"
#include "runtime/executor/waiter.hpp"
#include "runtime/queues/device_lanes.hpp"
#include "runtime/queues/device_messages.hpp"
#include "runtime/queues/device_program.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

class DeviceExecutor {
 public:
  DeviceExecutor(device::Device& device, const topology::Cluster& cluster, int rank,
                 transports::NodeMemory& node, transports::MessageTransport& network, FailureMonitor& monitor,
                 uint64_t stage_bytes);

  /// Makes now what every call needs of the device; `width`: of its programs.
  Status prepare(int width);
  /// The same of the queues that compute cores copy in, only. Any thread.
  Status prepare_cores(int width) { return lanes_.prepare(width, true); }
  uint64_t piece_bytes() const { return messages_.piece_bytes(); }
  PinnedStage* stage() const { return messages_.stage(); }

  /// Blocks until the plan is complete on this rank, or failed: then no copy of this rank moves any more, and the caller must cancel
  /// the network's messages before buffers go away. All ranks of the node have met in this call.
  Status run(const DeviceProgram& program, const QueueCall& call, Waiter& waiter);
  /// A call has failed that its ranks had met for, and nothing of this rank's runs: waits for its peers' queues that may use its buffers.
  void give_up(uint64_t sequence, const Waiter& waiter);

 private:
  Status begin();
  Status drive(Waiter& waiter);
  bool sweep();
  bool run_ready();
  bool poll_waits();
  bool poll_device();
  bool poll_messages();
  void start(uint32_t index);
  void start_message(uint32_t index);
  void given(uint32_t index);
  void complete(uint32_t index);
  bool satisfied(int local, int slot, uint32_t value);
  const DeviceMessages::Buffers& own_buffers() const {
    return call_->buffers[static_cast<size_t>(node_.local())];
  }
  bool through() const { return steps_.all_complete() && messages_.drained(); }
  Status idle(Waiter& waiter);
  void fail(Status status);
  void fail_message(const Status& status);
  Waiter::Situation describe() const;
  std::string waiting_text() const;

  device::Device& device_;
  const int rank_;
  transports::NodeMemory& node_;
  transports::MessageTransport& network_;
  FailureMonitor& monitor_;
  DeviceLanes lanes_;
  DeviceMessages messages_;

  // State of the current run.
  const DeviceProgram* program_ = nullptr;
  const QueueCall* call_ = nullptr;
  Status failure_;
  ReadySteps steps_;
  PendingWaits waits_;
  std::vector<uint32_t> through_;
};

}  // namespace epccl::runtime
