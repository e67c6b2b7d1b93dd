// Runs a rank's plan on live memory and live transports.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "runtime/executor/call_progress.hpp"
#include "runtime/executor/compiled_plan.hpp"
#include "runtime/executor/copy_offload.hpp"
#include "runtime/executor/copy_policy.hpp"
#include "runtime/executor/node_calls.hpp"
#include "runtime/executor/pending_waits.hpp"
#include "runtime/executor/ready_steps.hpp"
#include "runtime/executor/reduce_steps.hpp"
#include "runtime/executor/row_steps.hpp"
#include "runtime/executor/staged_input.hpp"
#include "runtime/executor/waiter.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

class Executor {
 public:
  Executor(const topology::Cluster& cluster, int rank, transports::NodeMemory& node,
           transports::MessageTransport* network, FailureMonitor& monitor, const WaitPolicy& policy,
           const CopyPolicy& copies);

  /// Blocks until the plan is complete on this rank, or failed. On failure messages may still be pending: the caller
  /// must cancel the network's before buffers go away.
  Status run(const CompiledPlan& plan, const Call& call);

  /// After a failure that the others have been told of: buffers go back to the user when no peer copies from or into them any more, or
  /// after a while.
  void wait_for_peers();

  /// How long calls from now on wait for a silent peer; 0: the communicator's timeout.
  void set_timeout(double seconds) { waiter_.set_timeout(seconds); }

  /// The number of the next call: taken once for each, in the same order on every rank.
  uint64_t next_sequence() { return ++last_sequence_; }
  uint64_t last_sequence() const { return last_sequence_; }

  // For who runs calls in another way than this.
  Waiter& waiter() { return waiter_; }
  NodeCalls& calls() { return calls_; }
  transports::MessageTransport* network() { return network_; }  // null on one node

  /// "+tcp", or "" on one node; for log lines.
  std::string network_suffix() const {
    return network_ != nullptr ? fmt::format("+{}", network_->name()) : "";
  }

 private:
  struct Message : transports::Completion {
    explicit Message(uint32_t number) : step(number) {}
    uint32_t step;
  };

  Status begin();
  void make();
  RowSteps::Writes row_writes(uint64_t input_bytes, uint64_t output_bytes) const;
  void end();
  bool uses_peers_buffers() const;
  bool sweep();
  bool glance();
  bool run_ready();
  bool poll_waits();
  bool poll_messages();
  bool network_busy() const { return pending_messages_ > 0 || !drained_; }
  void start(uint32_t index);
  void complete(uint32_t index);
  void start_copy(uint32_t index);
  bool offloads(const plan::Step& step) const;
  void offload(uint32_t index, std::span<const device::CopyWork> copies);
  bool poll_engine();
  void start_rows(uint32_t index);
  void start_reduce(uint32_t index);
  void copy_unmapped(uint32_t index, int peer, const transports::BufferRef& theirs, std::byte* mine);
  void start_message(uint32_t index);
  bool finish_message(const Message& message);
  bool satisfied(int local, int slot, uint32_t value);
  bool satisfied(const PendingWaits::Wait& wait) { return satisfied(wait.local, wait.slot, wait.value); }
  transports::CallScratch scratch() const { return call_->scratch(); }
  std::byte* address_of(int local, const plan::Location& location) const;
  void fail(Status status);
  void fail_at_peer(Status status);
  void fail_message(Status status);
  /// Why a message of another call came in the place of this call's.
  Status found_another_call(int peer, transports::MessageKey found) const;
  transports::SleepReasons reasons_to_sleep() const;
  Waiter::Situation stalled();
  Waiter::Situation describe() const;
  std::string waiting_text() const;

  const topology::Cluster& cluster_;
  const int rank_;
  transports::NodeMemory& node_;
  transports::MessageTransport* network_;
  FailureMonitor& monitor_;
  Waiter waiter_;
  NodeCalls calls_;
  RowSteps row_steps_;
  ReduceSteps reduce_steps_;
  CopyOffload engine_;
  StagedInput staged_input_;
  device::SharedCopy staging_;            // of blocks into scratch
  std::vector<device::CopyWork> copies_;  // of a step that goes there
  uint64_t last_sequence_ = 0;
  const bool take_turns_;  // with the core, so that what others have to send is on the wire soon
  const CopyPolicy copy_policy_;

  // State of the current run.
  const CompiledPlan* plan_ = nullptr;
  const Call* call_ = nullptr;
  Status failure_;
  bool streaming_ = false;
  RowSteps::Writes row_writes_ = RowSteps::Writes::cached;  // to outputs
  unsigned idle_visits_ = 0;
  ReadySteps steps_;
  PendingWaits waits_;
  std::deque<Message> messages_;  // stable addresses: transports hold pointers
  transports::FinishedMessages finished_;
  size_t pending_messages_ = 0;
  bool drained_ = true;  // nothing that was sent still needs this rank to drive the network
};

}  // namespace epccl::runtime
