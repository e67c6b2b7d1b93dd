// Messages in pieces, from and to any memory: as it lies there, where the network reaches it (the host's; a device's by GPUDirect), else
// by way of pinned memory. Either end may do the one or the other.
//
//   sender's GPU --copy--> slot --network--> slot --copy--> receiver's GPU
//                --------------network-------------------->
//
// Both ends know alike how a message is cut; several pieces are under way to each peer: while one is copied another is on the wire.
// Sends to a peer start in the order in which they were given. Every receive is posted at once (its first pieces), since
// nobody knows what the sender waits for: where slots run out a piece lands in plain memory and goes on through a slot when it has come.
//
// A message may be *held* in its slot, for somebody else to take it from there.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "runtime/queues/pinned_stage.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

class MessagePieces {
 public:
  /// `piece_bytes`: of a message, sent at once at most.
  MessagePieces(transports::MessageTransport& network, uint64_t piece_bytes)
      : network_(network), piece_bytes_(piece_bytes) {}

  uint64_t piece_bytes() const { return piece_bytes_; }

  /// A call begins, the one before is over. `stage`: what staged messages pass through, in pieces of `largest` bytes at most, to
  /// `peers` ranks; null: there are none. `by_cores`: compute cores copy from and to it, where the device can, with `blocks`.
  void begin(PinnedStage* stage, uint64_t largest, int peers, bool by_cores = false, int blocks = 0);

  struct Message {
    uint64_t token = 0;  // what its Outcome has
    int peer = 0;
    uint32_t pieces = 1;                    // all full but the last
    transports::MessageKey key = 0;         // of its first piece
    transports::MessageKey second_key = 0;  // of its second, from which they count up
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
    enum class Way : uint8_t { host, direct, staged } way = Way::host;
    const transports::DeviceMemory* lies_in = nullptr;  // where it is direct; stays until the message is over
    bool is_send = false;
    bool is_held = false;  // a staged send of one piece, to be handed over
  };
  void add(const Message& message);

  /// Messages are on their way to the slots where they are held.
  bool gathering() const { return coming_to_be_held_ > 0; }
  /// Offers each message that is held to somebody who takes it (and finishes its completion, some time), or not: then it is sent, as are
  /// those that find no slot before this.
  using Taker = std::function<bool(const Message&, const std::byte* data, transports::Completion&)>;
  Status hand_over(const Taker& take);

  /// Moves on what can move. True when anything did. On an error of the device messages may still be pending at the network, which has
  /// to cancel them before the next call and before this ends.
  Result<bool> move();
  /// The next message that is over: with the network's error, or as many bytes as the sender has sent.
  struct Outcome {
    Message message;
    uint64_t bytes = 0;
    Status status;
  };
  std::optional<Outcome> ended();
  /// Copies are under way, which wake nobody.
  bool copying() const { return stage_ != nullptr && (stage_->out.busy() || stage_->in.busy()); }
  /// Something is pending that the network wakes for.
  bool on_network() const { return !on_wire_.empty() || !drained_; }
  /// Nothing that was sent needs this rank to drive the network any more; of what has not been sent this says nothing.
  bool drained() const { return drained_; }
  /// The first message that is waited for; null: none.
  const Message* waiting_for() const;
  /// Waits for the copies under way; none starts any more.
  void stop();

 private:
  using Way = Message::Way;
  struct Open {
    Message message;
    uint32_t started = 0, finished = 0;
    bool over = false;
  };
  struct Piece {
    Open* of = nullptr;
    uint32_t number = 0;
    uint64_t bytes = 0;
    std::byte* slot = nullptr;           // null: it lands in `plain`, or does not pass the host
    std::unique_ptr<std::byte[]> plain;  // NOLINT: not to be initialised
    transports::Completion completion;
  };
  struct Peer {
    std::deque<Open*> sends;  // with pieces that have not started
    size_t under_way = 0;
  };

  Piece& take_piece(Open& of);
  bool is_held(const Piece& piece) const { return piece.of->message.is_held && holding_; }
  static bool is_staged(const Piece& piece) {
    return piece.of->message.way == Way::staged && piece.bytes > 0;
  }
  std::byte* place(const Piece& piece) const {
    return piece.of->message.memory + piece.number * piece_bytes_;
  }
  static transports::MessageKey key_of(const Piece& piece) {
    const Message& message = piece.of->message;
    return piece.number == 0 ? message.key : message.second_key + piece.number - 1;
  }
  void start_sends(Peer& to);
  Status post(Open& of);
  Status put_on_wire(Piece& piece);
  void wait_for(Piece& piece);
  Status start_receives();
  Status start_unstaged_sends();
  Status poll_copies(bool& moved);
  Status filled(Piece& piece);
  Status poll_network(bool& moved);
  Status completed(Piece& piece);
  void land(Piece& piece);
  void move_spilt();
  Status finish(Piece& piece);
  void end(Open& of, uint64_t bytes, Status status = {});

  transports::MessageTransport& network_;
  const uint64_t piece_bytes_;

  // Of the current call.
  PinnedStage* stage_ = nullptr;
  size_t most_per_peer_ = 0;  // through slots
  std::deque<Open> open_;     // stable addresses, as of the pieces
  std::deque<Piece> pieces_;
  std::vector<Piece*> unused_, on_wire_;
  std::vector<Piece*> held_;  // in their slots
  size_t coming_to_be_held_ = 0;
  bool holding_ = true;       // until they are handed over
  std::deque<Piece*> spilt_;  // have come, in plain memory
  std::map<int, Peer> peers_;
  std::vector<Open*> new_receives_;
  std::vector<Piece*> unstaged_sends_;  // to be put on the wire
  std::deque<Outcome> ended_;
  std::vector<uint64_t> through_;
  bool drained_ = true;
};

}  // namespace epccl::runtime
