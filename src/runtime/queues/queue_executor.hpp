// Runs a rank's plan on a device's queues: all of it is submitted at once, then the caller is free.
//
//   begin    the queues wait for the peers to be through with the call before the last, and for streams that have yet to come
//            (queued_behind.hpp)
//   plan     queue_program.hpp
//   end      a queue of the executor's own waits for all queues and for the peers that use this rank's buffers; then the call is
//            done, which the node's done counter says and finish() waits for
//
// A GPU's streams share hardware queues, 8 of them unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise, and one that waits for a word holds
// back what stands behind it there, of whichever stream and rank: the signal it waits for, for one. So on a GPU a wait is not queued
// before the post that ends it has been, by whichever rank of the node; posts that were are told in the node's memory:
//
//   rank 0                                    rank 1
//   queue A: copy, post  ; queued(0, slot)
//                                 \--------->  queue B: wait, copy
//   queue C: its next is a wait for rank 1 that is not queued yet: C stands still, other queues go on
//
// Then everything that is queued waits for what was queued before it, and no sharing can make a circle.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/executor/waiter.hpp"
#include "runtime/queues/lane_queues.hpp"
#include "runtime/queues/queue_feed.hpp"
#include "runtime/queues/queue_program.hpp"
#include "runtime/queues/queued_words.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

class QueueExecutor {
 public:
  using Limits = QueueFeed::Limits;

  /// Lets streams of users go on that wait for a call of this thread, which has failed for the reason given.
  using LetGo = std::function<void(const Status& why)>;

  QueueExecutor(device::Device& device, const topology::Cluster& cluster, transports::NodeMemory& node,
                FailureMonitor& monitor, const Limits& limits, LetGo let_go);
  QueueExecutor(const QueueExecutor&) = delete;
  QueueExecutor& operator=(const QueueExecutor&) = delete;
  /// Lets through what still runs, and waits for it.
  ~QueueExecutor();

  device::Device& device() { return device_; }
  /// After prepare(): what it is given before the first call comes before all calls.
  device::Queue* control() { return control_.get(); }

  /// Makes now what every call needs of the device. A GPU's queues too, all that programs of this width use: to make a stream may wait for
  /// the GPU, and that for a call.
  Status prepare(int width = 0);
  /// The same of the queues that compute cores copy in, only. Any thread.
  Status prepare_cores(int width) { return lanes_.prepare(width, plan::Signals::spread, true); }

  /// Waits for no queue; on a GPU for the node's ranks, which all are to submit the call. On error everything is let
  /// through and the communicator is broken. `program` and `call` stay until forget().
  Status submit(const QueueProgram& program, const QueueCall& call, Waiter& waiter);

  /// Waits until the submitted call is over: sleeps, looks for failures, gives up after the timeout of `waiter`. What goes wrong lets the
  /// queues of all ranks of the node through: nothing runs when this returns.
  Status finish(Waiter& waiter);

  /// A call has failed, as `why` says, that its ranks had met for: lets all queues of the node's ranks through and waits until this rank's
  /// have run out, `another` of its too (null: there is none). Where they do not, streams that wait for the call may stand before them in a
  /// hardware queue: these are let go. Then waits for its peers' queues that may use its buffers, `seconds` at most.
  void give_up(const Status& why, uint64_t sequence, double seconds, device::Queue* another = nullptr);

  /// What the call was given ends.
  void forget() { now_.reset(); }

  /// As at its end: nothing of this rank's runs any more.
  void stop();

 private:
  /// A call that was submitted.
  struct Submitted {
    const QueueProgram& program;
    const QueueCall& call;
    size_t used_events = 0;
  };
  struct Submission;
  /// How far a program is submitted: by queue, how many of its operations; and which of its events are recorded.
  struct Turns {
    std::vector<size_t> submitted;
    std::vector<bool> recorded;
    size_t left = 0;  // operations
  };

  Status make_queues(const QueueProgram& program);
  Status begin(const Submission& now);
  Status await_scratch(const Submission& now);
  Status await_streams(const Submission& now);
  Status submit_in_turns(const Submission& now);
  Result<bool> submit_some(const Submission& now);
  Status submit_one(const Submission& now, const QueueOperation& operation);
  bool can_follow(const Submission& now, const QueueOperation& operation) const;
  Status end(const Submission& now);
  Status try_submit(const QueueProgram& program, const QueueCall& call, Waiter& waiter);
  Status wait_until_over(Waiter& waiter);
  Result<device::WordValue> wait_for(const Submission& now, int local, int slot, uint64_t value) const;
  int local_of(int rank) const { return cluster_.local_of(rank); }
  Status make_events(size_t count);
  Result<device::QueueEvent*> event(size_t index);
  void give_up(const Status& why) { give_up(why, last_sequence_, peers_timeout_); }
  Status failure() const;
  Waiter::Situation describe() const;
  Status look(size_t& passed, Waiter& waiter);

  device::Device& device_;
  const topology::Cluster& cluster_;
  transports::NodeMemory& node_;
  FailureMonitor& monitor_;
  const LetGo let_go_;
  const QueuedWords words_;
  QueueFeed feed_;
  LaneQueues lanes_;
  std::vector<device::Queue*> queues_;  // of the current call
  std::unique_ptr<device::Queue> control_;
  std::vector<std::unique_ptr<device::QueueEvent>> events_;
  std::optional<Submitted> now_;  // until forget()
  uint64_t last_sequence_ = 0;
  double peers_timeout_ = 0;
  Turns turns_;
  std::vector<device::WordValue> waits_;  // that are to be queued together
};

}  // namespace epccl::runtime
