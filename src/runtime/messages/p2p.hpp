// Sends and receives between pairs of ranks, started together and progressed together.
//
// Where ranks may have memory of GPUs, messages to other nodes are cut, whatever memory they are in: neither end knows the other's. All
// pieces but the last have `piece_bytes`, and the last has less: so a piece says by its length whether there are more, and a receive
// finds out that the sender sent another length than it expects.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "runtime/engines/gpu_messages.hpp"
#include "runtime/executor/waiter.hpp"
#include "runtime/messages/carrying.hpp"
#include "runtime/queues/message_pieces.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/shm_messages.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

struct P2pOperation {
  bool is_send = false;
  const void* source = nullptr;  // send
  void* destination = nullptr;   // recv
  uint64_t bytes = 0;
  int peer = 0;
  uint64_t count = 0;
  const char* datatype = "";  // a literal
  /// Of memory of a GPU, or in the order of a stream of one; let go of when the operation is over.
  std::shared_ptr<const GpuEnd> gpu = {};

  /// "send of 4 float32 to rank 3"
  std::string text() const;
};

/// Matches the n-th send to a peer with the n-th receive from this rank there.
class P2p {
 public:
  /// `piece_bytes`: of a message to another node, the same on all ranks; 0: they go whole, and none of them is of a GPU.
  P2p(const topology::Cluster& cluster, int rank, transports::ShmMessages& shm,
      transports::MessageTransport* network, Carrying& carrying, uint64_t piece_bytes);

  /// Waits until what the streams of these operations had before is through. All at once: no call of a group waits for another.
  static Status wait_for_streams(std::span<const P2pOperation> operations);
  /// Whether this rank's sends to itself, all of a group, have their receives. Known before any of the group begins. Any thread.
  Status check_own(std::span<const P2pOperation> operations) const {
    return match_own(operations).take_status();
  }
  /// Starts all operations, when their streams have come. Sends to this rank itself are matched with its receives in order, and copied.
  Status start(const std::vector<P2pOperation>& operations);
  /// Moves things on: true when anything moved. Error: an operation failed.
  Result<bool> progress();
  bool done() const {
    return pending_.empty() && drained_ && (!pieces_ || pieces_->drained()) && shm_.drained() &&
           !carrying_.inside();
  }
  /// After an error: buffers and streams are the user's again. Waits up to `seconds` for peers that still read them.
  void give_up(double seconds);

  // For waiting.
  bool network_pending() const;
  /// Copies of a GPU are under way, whose end wakes nobody.
  bool copies_pending() const {
    return (gpu_ != nullptr && gpu_->copies() > 0) || (pieces_ && pieces_->copying());
  }
  std::string waiting_text() const;
  /// The ranks that have yet to send or take a message; ascending.
  std::vector<int> waited_for() const;

 private:
  /// A message that goes in pieces.
  struct Cut {
    MessagePieces::Message message;
    std::shared_ptr<const transports::DeviceMemory> lies_in;  // null: it is the host's, or passes through it
  };
  struct InFlight {
    P2pOperation operation;
    transports::MessageKey key = 0;
    bool over_network = false, may_be_carried = false;
    transports::Completion completion;
    std::unique_ptr<GpuFlight> gpu;
    std::unique_ptr<Cut> cut;
  };
  struct OwnPair {
    const P2pOperation *send, *receive;
  };

  void enlist(InFlight& flight, const P2pOperation& operation, algorithms::GroupSends& sends);
  Result<bool> see_ends();
  Status start_remote(InFlight& flight);
  Status check_length(const InFlight& flight) const;
  Result<bool> is_over(InFlight& flight);
  Result<std::vector<OwnPair>> match_own(std::span<const P2pOperation> operations) const;
  Status copy_own(std::span<const OwnPair> pairs, InFlight* next);
  void stagger();
  bool is_cut(const InFlight& flight) const;
  void cut(InFlight& flight);
  void begin_pieces();
  Status lay_out_gathered();
  Result<bool> move_pieces();
  Status start_on_gpu(InFlight& flight);

  const topology::Cluster& cluster_;
  const int rank_;
  transports::ShmMessages& shm_;
  transports::MessageTransport* network_;
  Carrying& carrying_;
  std::vector<uint64_t> counted_in_;  // by node: the call that counted it last
  uint64_t calls_ = 0;
  std::vector<uint64_t> sent_, received_;                // messages so far, by peer: the key of the next
  std::vector<uint64_t> sent_pieces_, received_pieces_;  // so far, of messages behind their first
  std::optional<MessagePieces> pieces_;
  bool gathering_ = false;           // what may be carried, and is not laid out yet
  std::vector<InFlight> in_flight_;  // of this call; made at its start, at its full length
  std::vector<InFlight*> pending_;   // those whose end has not been seen
  size_t over_network_ = 0;          // of these
  GpuMessages* gpu_ = nullptr;       // of the GPU whose memory was used
  bool drained_ = true;              // nothing that was sent still needs this rank to drive the network
};

}  // namespace epccl::runtime
