// Sends and receives of a GPU's memory, a step at a time, on a node: from GPU memory to GPU memory by copy engines. And how those to and
// from other nodes go, which p2p.hpp moves in pieces (message_pieces.hpp).
//
//   sender                                          receiver
//   offers its buffer, under the message's key ---> maps it, and has a queue of its own copy from it
//                                              <--- taken
//
// Only the receiver writes, and only into its own buffer. The sender's is read: so it is the user's again when it was taken or, should
// the call fail, when no rank of the node reads it any more. An offer is a message like any other: order, matching, time-outs and
// failures are those of the rings. What cannot go so passes through the host's memory: from memory that peers cannot map, and where the
// other end is the host's memory (which declines an offer). So does what is small: it leaves at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/engines/engine_use.hpp"
#include "runtime/queues/event_pool.hpp"
#include "runtime/queues/pinned_stage.hpp"
#include "runtime/streams/device_rooms.hpp"
#include "runtime/streams/device_worker.hpp"
#include "runtime/streams/turn.hpp"
#include "topology/cluster.hpp"
#include "transports/cuda_ipc/peer_memory.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/shm/shm_messages.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

class GpuMessages;

/// How a send or receive of GPU memory goes, and since when its buffer may be used.
struct GpuEnd {
  GpuMessages* messages = nullptr;
  const DeviceWorker* worker = nullptr;
  DeviceRooms* rooms = nullptr;
  std::shared_ptr<Turn> turn;
  // Where the stream is being captured into a graph, instead of a turn:
  std::shared_ptr<device::Queue> capture;
  void* stream = nullptr;
  bool direct = false;           // by copy engines of the receiver, if the other end can
  bool may_use_cores = false;    // which may leave a message inside a GPU to compute cores
  transports::BufferRef buffer;  // of a direct send: what is offered
  DeviceRooms::Borrowed pinned;  // else, where it passes through: null: the buffer is the host's own
  // To and from other nodes: not null, if the buffer is a GPU's. What passes through it, and why if that is known already.
  PinnedStage* stage = nullptr;
  const char* why_staged = nullptr;
};

/// One send or receive on its way.
struct GpuFlight {
  bool is_send = false;
  std::byte* data = nullptr;  // the user's
  uint64_t bytes = 0;
  std::shared_ptr<const GpuEnd> end, other_end;  // other: of a message of this rank to itself
  int local = 0;                                 // the other rank
  transports::MessageKey key = 0;

  enum class Step : uint8_t { copying_in, moving, copying_out };
  Step step = Step::moving;
  transports::Arrival arrival;
  std::unique_ptr<std::byte[]> host;  // the message, after it was declined
  std::unique_ptr<device::QueueEvent> copied;
};

class GpuMessages {
 public:
  /// `stage`: that of collectives, which messages to and from other nodes pass through, `piece_bytes` at once; null on one node.
  GpuMessages(device::Device& device, const topology::Cluster& cluster, int rank,
              transports::NodeMemory& node, transports::ShmMessages& shm, PinnedStage* stage,
              uint64_t piece_bytes);
  GpuMessages(const GpuMessages&) = delete;
  GpuMessages& operator=(const GpuMessages&) = delete;
  ~GpuMessages() = default;

  /// Makes now what messages need of the device.
  Status prepare();

  /// A send or receive, as it is issued.
  struct Wish {
    bool is_send = false;
    const std::byte* buffer = nullptr;
    uint64_t bytes = 0;
    int peer = 0;
    std::string text;  // for the log
  };
  /// How it goes: sets `direct`, `buffer` and `pinned`, or `stage`. Any thread. To be called before the call's turn, since memory may be
  /// allocated.
  Status plan(GpuEnd& end, const Wish& wish, EngineUse use);

  // Of calls in their turn.
  /// Where the network finds the buffer of a message to or from another node; null: the message passes through the stage.
  std::shared_ptr<const transports::DeviceMemory> lies_in(const GpuEnd& end, const Wish& wish,
                                                          transports::MessageTransport& network);
  Status start(GpuFlight& flight, transports::Completion& completion);
  /// Starts a message of this rank to itself.
  Status start_own(GpuFlight& receive, const std::byte* source);
  /// Moves it on when its completion is finished, or a copy is through. True: it is over.
  Result<bool> step(GpuFlight& flight, transports::Completion& completion);
  /// How many copies are under way: their ends wake nobody.
  int copies() const { return copies_; }
  /// Nothing is under way any more.
  void call_over() { peers_.calls_over(call_++); }

  /// After a failure, for good: nothing of this rank moves any more, and nobody reads what it offered, unless they do not stop
  /// within `seconds`.
  void give_up(double seconds);

 private:
  Status find_offer(const Wish& wish, transports::BufferRef& buffer) const;
  Status copy(GpuFlight& flight, std::byte* to, const std::byte* from, bool may_use_cores = false);
  bool is_on_this_gpu(const transports::BufferRef& buffer) const;
  Status copy_to_host(GpuFlight& flight, std::byte* to, const std::byte* from);
  Status copy_from_host(GpuFlight& flight, std::byte* to, const std::byte* from);
  Status mark_copied(GpuFlight& flight, device::Queue& queue);
  Status arrived(GpuFlight& flight, transports::Completion& completion);
  Result<bool> sent(GpuFlight& flight, transports::Completion& completion);
  Status take(GpuFlight& flight, transports::Completion& completion);
  Result<std::byte*> address_of(int local, const transports::BufferRef& buffer);
  int local_of(int peer) const { return cluster_.local_of(peer); }

  device::Device& device_;
  const topology::Cluster& cluster_;
  const int rank_;
  transports::NodeMemory& node_;
  transports::ShmMessages& shm_;
  transports::PeerMemory peers_;
  std::vector<std::unique_ptr<device::Queue>> queues_;
  size_t next_queue_ = 0;
  EventPool events_;
  std::vector<int> reading_;  // copies under way, by the local rank they read
  int copies_ = 0;
  uint64_t call_ = 1;
  std::atomic<bool> told_unmapped_ = false, told_declined_ = false;
  DeviceRoom bounce_;  // for memory of the host that the device does not know
  PinnedStage* const stage_;
  const uint64_t piece_bytes_;
};

}  // namespace epccl::runtime
