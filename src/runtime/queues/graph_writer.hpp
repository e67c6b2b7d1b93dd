// Puts a rank's plan into the graph that a stream is being captured into. Nothing runs; each run of the graph is a pass.
//
//   user's stream  --+                                                            +-->  goes on
//   control queue    +-> pass begins: tell all, wait for all -> post .. wait .. -> pass ends
//   other queues                                     +-> copies, reductions ... -+
//
// A call that is kernels over peers' memory has no other queues:
//
//   control queue   before -> pass begins: tell all, wait for all -> across -> tell all, wait for all; the pass ends -> after
//
// A call that a thread of the host makes (engines/replayed_calls.hpp) is kernels on the user's stream, behind what the chain has, and the
// chain behind them. They wait as long as that takes, and the library's own queues have to run meanwhile: those have another priority.
//
//   user's stream   says that the call has come -> waits until it is made
//
// Only the control queue waits for other ranks, in an order that all ranks share (plan::in_common_order), and a pass begins when
// the one before it is over everywhere. So a driver may run the branches of the graph in any order, one after the other too.
#pragma once

#include <functional>
#include <vector>

#include "base/status.hpp"
#include "device/kernels/signal_parameters.hpp"
#include "runtime/queues/graph_room.hpp"
#include "runtime/queues/queue_feed.hpp"
#include "runtime/queues/queue_program.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

/// What a rank queues of a call that is all in the chain. Each may be null: nothing.
struct ChainWork {
  using Queued = std::function<Status(device::Queue& queue)>;
  Queued before;  // on its own memory, which others do not use before the pass begins
  Queued across;  // what uses other ranks' memory
  Queued after;   // on its own memory, when all are through with that
};

class GraphWriter {
 public:
  /// `local`: this rank's position on the node.
  GraphWriter(std::shared_ptr<GraphRoom> room, const topology::Cluster& cluster, int local, int local_size);

  /// `program`: with chained signals. `rooms`: every rank's GraphRoom::memory() in this process, by local position. The graph
  /// keeps `kept`. On error the capture is spoilt.
  Status write(const QueueProgram& program, const QueueCall& call, const std::vector<std::byte*>& rooms,
               std::shared_ptr<const void> kept, device::Queue& stream);
  /// The same of the call `sequence` that is all in the chain.
  Status write(const ChainWork& work, uint64_t sequence, const std::vector<std::byte*>& rooms,
               std::shared_ptr<const void> kept, device::Queue& stream);
  /// The host makes call `number`. Whose two halves are written apart, others of other communicators may be between them.
  enum class Half : uint8_t { says, waits, both };
  Status write(uint64_t number, Half half, std::shared_ptr<const void> kept, device::Queue& stream);

 private:
  Result<GraphRoom::Queues*> find_control(device::Queue& stream);
  Status find_queues(const QueueProgram& program, device::Queue& stream);
  void describe_ranks(const std::vector<std::byte*>& rooms);
  Status follow(device::Queue& stream);
  Status begin(uint64_t sequence);
  void tell_all(int slot, uint32_t value);
  void wait_for_all(int slot, uint32_t value);
  Status write_operations(const QueueProgram& program);
  Status write_operation(const QueueProgram& program, const QueueOperation& operation);
  Status end(const QueueProgram& program);
  Status go_on(device::Queue& stream);
  Status add_signal(const plan::Step& step);
  Status flush_signals();

  const std::shared_ptr<GraphRoom> room_;
  const topology::Cluster& cluster_;
  const int local_, local_size_;
  QueueFeed feed_;
  // Of the call that is being written.
  device::Queue* control_ = nullptr;
  std::vector<device::Queue*> queues_;
  device::kernels::SignalParameters signals_;  // not yet given to the control queue
};

}  // namespace epccl::runtime
