// What the ranks of a node tell each other about a call: that they are in it, what they call it, where their buffers lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/host/reduction.hpp"
#include "runtime/executor/call_progress.hpp"
#include "runtime/executor/counter_values.hpp"
#include "runtime/executor/queued_behind.hpp"
#include "runtime/executor/row_buffers.hpp"
#include "runtime/executor/waiter.hpp"
#include "topology/cluster.hpp"
#include "transports/cuda_ipc/peer_memory.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

/// A call whose buffers are memory of a device other than the host.
struct CallDevice {
  device::Device* device = nullptr;
  transports::PeerMemory* peers =
      nullptr;                         // by which buffers are offered, and what peers have freed is heard
  transports::BufferRef scratch = {};  // as describe_on() says: the same in all calls
};

/// What peers are told of a buffer on a device. What they cannot map has no handle: they must do without.
transports::BufferRef describe_on(const transports::PeerMemory& peers, const void* buffer, uint64_t bytes);

/// What ranks compare instead of texts. Never 0, which is that of a record without a text.
uint64_t signature_of(std::string_view text);

/// One run of a plan.
struct Call {
  uint64_t sequence = 0;  // 1, 2, ...: the same on every rank
  const void* input = nullptr;
  void* output = nullptr;
  std::string_view
      text;  // "alltoall count 4 float32": equal on ranks that agree; stays until the call is over
  const RowBuffers* rows =
      nullptr;  // where the plan moves token rows; then input and output are its first part's
  CallProgress* progress = nullptr;              // who is told how far the call is; null: nobody asks
  const device::Reduction* reduction = nullptr;  // where the plan reduces
  uint64_t input_bytes = 0,
           output_bytes = 0;         // what peers may use, where that is more than this rank's plan does
  const CallDevice* on = nullptr;    // null: host memory
  device::Queue* capture = nullptr;  // the user's stream, whose graph the call becomes part of; null: it runs
  // The user's stream, to which its queues come by themselves, if it is made by queues; null: the stream has come.
  const QueuedBehind* behind = nullptr;
  bool offload = false;  // large copies go to a copy engine
  // What this rank tells its node with the call, which lies at the head of its scratch (the plan leaves it alone). A rank has told before
  // its first post, and each is heard once, when a post of it was seen: `hear` finds as many bytes there, until the call is over. It
  // may change steps of the plan that wait for that post: what a peer tells may say where from, or how much.
  std::span<const std::byte> tells = {};
  const std::function<void(int local, const std::byte* told)>* hear = nullptr;
  uint64_t signature = 0;  // signature_of(text); 0: begin() makes it. Who changes `text` sets 0.
  uint16_t meaning =
      0;  // for the names of its messages; the same on every rank, whatever makes the call there
  bool is_small = false;  // of scratch, no rank of the node uses more than transports::small_place

  transports::CallScratch scratch() const { return {sequence, is_small}; }
};

class NodeCalls {
 public:
  NodeCalls(const topology::Cluster& cluster, int rank, transports::NodeMemory& node, Waiter& waiter)
      : cluster_(cluster),
        rank_(rank),
        node_(node),
        waiter_(waiter),
        checked_(static_cast<size_t>(node.local_size())) {}

  /// Waits until this call's place in scratch is free, and publishes its record. `call` must stay. The
  /// bytes are what this rank's plan touches. Error, on all ranks: there are no more calls.
  Status begin(const Call& call, uint64_t input_bytes, uint64_t output_bytes);

  /// After a post of a peer in this call was seen: whether it calls the same. Looks once.
  Status check(int local);
  /// The short way of check(): true where the peer makes the same call and tells nothing with it. False says nothing yet: ask check().
  bool agrees(int local) const {
    const transports::CallRecord& theirs = node_.call(local, call_->sequence);
    return theirs.sequence == call_->sequence && theirs.signature == signature_ &&
           theirs.history == history_ && call_->tells.empty();
  }

  /// Where this rank waits for long, as it may for one that it has misunderstood: whether a rank that is through with this call made another one.
  Status compare_with_finished() const;

  /// Waits until all ranks of the node are in this call and checks them: then all records can be read.
  Status meet();

 private:
  void add_to_history();
  Status compare(int local, const transports::CallRecord& theirs) const;
  Status earlier_disagreement(int local) const;
  Status wait_for_scratch();
  uint64_t lowest(int slot) const;
  Status wait_for(int slot, uint64_t value, const char* what);
  void publish_on_device(transports::CallRecord& record) const;
  void describe_buffers(transports::CallRecord& record) const;
  void hear_of_frees(transports::PeerMemory& peers) const;
  void publish_buffers(transports::CallRecord& record, uint64_t input_bytes, uint64_t output_bytes) const;
  int rank_at(int local) const { return cluster_.rank_at(cluster_.node_of(rank_), local); }

  const topology::Cluster& cluster_;
  const int rank_;
  transports::NodeMemory& node_;
  Waiter& waiter_;
  const Call* call_ = nullptr;
  uint64_t signature_ = 0;  // of the call
  uint64_t history_ = 0;    // of the signatures of all calls up to and with number `told_`
  uint64_t told_ = 0;
  std::vector<uint64_t> checked_;                          // by local position: in which call it was last
  bool touched_records_ = false, touched_places_ = false;  // of small calls
  uint64_t all_done_ = 0;  // the others were through with this call when they were last looked at
};

}  // namespace epccl::runtime
