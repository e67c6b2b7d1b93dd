// Runs a rank's plan on live memory and live transports.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "runtime/executor/call_progress.hpp"
#include "runtime/executor/compiled_plan.hpp"
#include "runtime/executor/reduce_steps.hpp"
#include "runtime/executor/row_steps.hpp"
#include "runtime/executor/waiter.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

/// One run of a plan.
struct Call {
  uint64_t sequence = 0;  // 1, 2, ...: the same on every rank
  const void* input = nullptr;
  void* output = nullptr;
  std::string text;  // "alltoall count 4 float32": equal on ranks that agree
  const RowBuffers* rows =
      nullptr;  // where the plan moves token rows; then input and output are its first part's
  CallProgress* progress = nullptr;              // who is told how far the call is; null: nobody asks
  const device::Reduction* reduction = nullptr;  // where the plan reduces
  uint64_t input_bytes = 0,
           output_bytes = 0;  // what peers may use, where that is more than this rank's plan does
  bool is_small = false;      // of scratch, no rank of the node uses more than transports::small_place
};

class Executor {
 public:
  /// `streaming_bytes`: copies into the output stream past the cache where the plan's output is at least this large.
  Executor(const topology::Cluster& cluster, int rank, transports::NodeMemory& node,
           transports::MessageTransport* network, FailureMonitor& monitor, const WaitPolicy& policy,
           uint64_t streaming_bytes);

  /// Blocks until the plan is complete on this rank, or failed. On failure messages may still be pending: the caller
  /// must cancel the network's before buffers go away.
  Status run(const CompiledPlan& plan, const Call& call);

  /// How long calls from now on wait for a silent peer; 0: the communicator's timeout.
  void set_timeout(double seconds) { waiter_.set_timeout(seconds); }

  /// The number of the next call: taken once for each, in the same order on every rank.
  uint64_t next_sequence() { return ++last_sequence_; }

  /// "+tcp", or "" on one node; for log lines.
  std::string network_suffix() const {
    return network_ != nullptr ? fmt::format("+{}", network_->name()) : "";
  }

 private:
  struct PendingMessage {
    uint32_t step;
    transports::Completion completion;
  };

  Status begin();
  Status wait_for_scratch();
  void publish_call();
  void publish_buffers(transports::CallRecord& record) const;
  bool sweep();
  bool glance();
  bool run_ready();
  bool poll_waits();
  bool poll_messages();
  bool network_busy() const { return pending_messages_ > 0 || !drained_; }
  void start(uint32_t index);
  void complete(uint32_t index);
  void start_copy(uint32_t index);
  void start_rows(uint32_t index);
  void start_reduce(uint32_t index);
  void copy_unmapped(uint32_t index, int peer, const transports::BufferRef& theirs, std::byte* mine);
  void start_message(uint32_t index);
  bool satisfied(const CompiledStep& step);
  Status check_peer_call(int local);
  transports::CallScratch scratch() const { return {call_->sequence, call_->is_small}; }
  std::byte* address_of(int local, const plan::Location& location) const;
  void fail(Status status);
  void fail_at_peer(Status status);
  void fail_message(Status status);
  transports::SleepFor reason_to_sleep() const;
  Waiter::Situation describe() const;
  std::string waiting_text() const;

  const topology::Cluster& cluster_;
  const int rank_, node_index_;
  transports::NodeMemory& node_;
  transports::MessageTransport* network_;
  FailureMonitor& monitor_;
  Waiter waiter_;
  RowSteps row_steps_;
  ReduceSteps reduce_steps_;
  uint64_t last_sequence_ = 0;
  const bool take_turns_;  // with the core, so that what others have to send is on the wire soon
  const uint64_t streaming_bytes_;

  // State of the current run.
  const CompiledPlan* plan_ = nullptr;
  const Call* call_ = nullptr;
  Status failure_;
  bool streaming_ = false;
  unsigned idle_visits_ = 0;
  uint64_t signature_ = 0;
  size_t remaining_ = 0;
  std::vector<uint32_t> counts_, ready_, pending_waits_;
  size_t next_ready_ = 0;
  std::deque<PendingMessage> messages_;  // stable addresses: transports hold pointers to the completions
  size_t pending_messages_ = 0;
  bool drained_ = true;  // nothing that was sent still needs this rank to drive the network
  std::vector<bool> peer_checked_;
};

}  // namespace epccl::runtime
