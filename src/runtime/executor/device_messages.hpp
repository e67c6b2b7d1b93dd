// Messages of a call whose data is in a device's memory: as it lies there, where the transport can (GPUDirect), else by way of pinned
// memory. Either end may do the one or the other.
//
//   sender's GPU --copy--> slot --network--> slot --copy--> receiver's GPU
//                --------------network-------------------->
//
// Messages are cut into pieces, alike at both ends; several are under way to each peer: while one is copied another is on the wire.
// Sends to a peer start in the order in which they were given. Every receive is posted at once (its first two pieces), since
// nobody knows what the sender waits for: where slots run out a piece lands in plain memory and goes on through a slot when it has come.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/executor/copy_line.hpp"
#include "runtime/executor/device_program.hpp"
#include "runtime/executor/pinned_slots.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

class DeviceMessages {
 public:
  /// `stage_bytes`: EPCCL_STAGE_SIZE; `ranks`: of the communicator.
  DeviceMessages(device::Device& device, transports::MessageTransport& network, uint64_t stage_bytes,
                 int ranks);

  /// Allocates, and so may wait for what the device does.
  Status prepare();
  /// Of a message, at most, at once: the same on all ranks.
  uint64_t piece_bytes() const { return piece_bytes_; }

  /// A call begins, the one before is over. `buffers`: this rank's, by plan::Buffer.
  using Buffers = std::array<std::byte*, 3>;
  void begin(uint64_t sequence, const DeviceProgram& program, const Buffers& buffers);
  /// How the call's messages go, and why, for log lines.
  std::string way() const;

  struct Message {
    uint32_t step = 0;
    int peer = 0;
    uint32_t first_piece = 0;
    plan::Buffer buffer = plan::Buffer::input;
    std::byte* memory = nullptr;  // the device's, in that buffer
    uint64_t bytes = 0;
  };
  void send(const Message& message) { add(message, true); }
  void recv(const Message& message) { add(message, false); }

  /// Moves on what can move. True when anything did. On error messages may still be pending at the network, which has to cancel
  /// them before the next call and before this ends.
  Result<bool> move();
  /// The next step whose message is complete.
  std::optional<uint32_t> done();
  /// Copies are under way, which wake nobody.
  bool copying() const { return out_->busy() || in_->busy(); }
  /// Something is pending that the network wakes for.
  bool on_network() const { return !on_wire_.empty() || !drained_; }
  bool drained() const { return drained_; }
  /// What is waited for; empty: nothing of this.
  std::string waiting_for() const;
  /// Waits for the copies under way; none starts any more.
  void stop();

 private:
  struct Open {
    Message message;
    bool is_send = false;
    uint32_t pieces = 1, started = 0, finished = 0;
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

  void find_direct(const DeviceProgram& program, const Buffers& buffers);
  void add(const Message& message, bool is_send);
  Piece& take_piece(Open& of);
  std::byte* place(const Piece& piece) const;
  const transports::DeviceMemory* direct(const Open& of) const {
    return direct_[static_cast<size_t>(of.message.buffer)].get();
  }
  void start_sends(int peer);
  Status post(Open& of);
  Status put_on_wire(Piece& piece);
  Status start_receives();
  Status start_direct_sends();
  Status poll_copies(bool& moved);
  Status poll_network(bool& moved);
  Status completed(Piece& piece);
  void land(Piece& piece);
  void move_spilt();
  Status finish(Piece& piece);

  device::Device& device_;
  transports::MessageTransport& network_;
  const uint64_t piece_bytes_, pool_bytes_;
  PinnedSlots out_slots_, in_slots_;
  std::optional<CopyLine> out_, in_;

  // Of the current call.
  uint64_t sequence_ = 0;
  size_t most_per_peer_ = 2;
  std::array<std::shared_ptr<const transports::DeviceMemory>, 3>
      direct_;  // by plan::Buffer; null: through slots
  std::string why_not_direct_;
  std::deque<Open> open_;  // stable addresses, as of the pieces
  std::deque<Piece> pieces_;
  std::vector<Piece*> unused_, on_wire_;
  std::deque<Piece*> spilt_;  // have come, in plain memory
  std::map<int, Peer> peers_;
  std::vector<Open*> new_receives_;
  std::vector<Piece*> direct_sends_;  // to be put on the wire
  std::deque<uint32_t> done_;
  std::vector<uint64_t> through_;
  bool drained_ = true;
};

}  // namespace epccl::runtime
