// Runs a rank's plan on a device's queues: all of it is submitted at once, then the caller is free.
//
//   begin    the queues wait for the user's stream, and for the peers to be through with the call before the last
//   plan     queue_program.hpp
//   end      the user's stream waits for all queues and for the peers that use this rank's buffers; then the call is done,
//            which the node's done counter says
//
// Without a stream of the device (the host) a queue of the executor's own takes its place, and finish() waits.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/executor/queue_feed.hpp"
#include "runtime/executor/queue_program.hpp"
#include "runtime/executor/waiter.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

class QueueExecutor {
 public:
  using Limits = QueueFeed::Limits;

  QueueExecutor(device::Device& device, const topology::Cluster& cluster, int rank,
                transports::NodeMemory& node, FailureMonitor& monitor, const Limits& limits);
  QueueExecutor(const QueueExecutor&) = delete;
  QueueExecutor& operator=(const QueueExecutor&) = delete;
  /// Lets through what still runs, and waits for it.
  ~QueueExecutor();

  device::Device& device() { return device_; }

  /// Makes now what every call needs of the device.
  Status prepare();

  /// Does not block. `stream`: the user's, as a queue; null: none. On error nothing was submitted, or everything is let
  /// through and the communicator is broken.
  Status submit(const QueueProgram& program, const QueueCall& call, device::Queue* stream);

  /// Waits until the last submitted call is over: sleeps, looks for failures, gives up after the timeout of `waiter`. What
  /// goes wrong lets the queues of all ranks of the node through: nothing runs when this returns.
  Status finish(Waiter& waiter);

  /// Lets all queues of the node's ranks through and waits until this rank's have run out.
  void give_up();

  /// As at its end: nothing of this rank's runs any more.
  void stop();

 private:
  Status make_queues(const QueueProgram& program);
  Status begin(const QueueCall& call, device::Queue& control, bool joins_stream);
  Status submit_operations(const QueueProgram& program, const QueueCall& call);
  Status end(const QueueProgram& program, const QueueCall& call, device::Queue& control);
  Status submit_all(const QueueProgram& program, const QueueCall& call, device::Queue* stream);
  device::SignalWord& word(int local, int slot) const { return node_.segment().counter(local, slot); }
  int local_of(int rank) const { return cluster_.local_of(rank); }
  Result<device::QueueEvent*> event(size_t index);
  Status failure() const;
  Waiter::Situation describe() const;

  device::Device& device_;
  const topology::Cluster& cluster_;
  const int rank_;
  transports::NodeMemory& node_;
  FailureMonitor& monitor_;
  QueueFeed feed_;
  std::array<std::vector<std::unique_ptr<device::Queue>>, plan::lanes> kept_;  // by lane
  std::vector<device::Queue*> queues_;                                         // of the current call
  std::unique_ptr<device::Queue> control_;
  std::vector<std::unique_ptr<device::QueueEvent>> events_;
  // The last call.
  const QueueProgram* program_ = nullptr;
  uint64_t sequence_ = 0;
  size_t used_events_ = 0;
  std::string text_;
};

}  // namespace epccl::runtime
