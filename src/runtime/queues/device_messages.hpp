// The messages of a plan whose buffers are in a device's memory: each buffer as it lies there, where the transport can (GPUDirect), else by
// way of pinned memory.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/queues/device_program.hpp"
#include "runtime/queues/message_pieces.hpp"
#include "runtime/queues/queue_feed.hpp"
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
  uint64_t piece_bytes() const { return pieces_.piece_bytes(); }
  /// What they pass through; free between calls.
  PinnedStage* stage() const { return stage_.get(); }

  /// A call begins, the one before is over. `buffers`: this rank's, by plan::Buffer.
  using Buffers = std::array<std::byte*, 3>;
  void begin(const QueueCall& call, const DeviceProgram& program, const Buffers& buffers);
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
  bool copying() const { return pieces_.copying(); }
  /// Something is pending that the network wakes for.
  bool on_network() const { return pieces_.on_network(); }
  bool drained() const { return pieces_.drained(); }
  /// What is waited for; empty: nothing of this.
  std::string waiting_for() const;
  /// Waits for the copies under way; none starts any more.
  void stop() { pieces_.stop(); }

 private:
  void find_direct(const DeviceProgram& program, const Buffers& buffers);
  void add(const Message& message, bool is_send);

  device::Device& device_;
  transports::MessageTransport& network_;
  const uint64_t stage_bytes_;
  const int ranks_;
  std::unique_ptr<PinnedStage> stage_;
  MessagePieces pieces_;

  // Of the current call.
  uint64_t sequence_ = 0;
  uint16_t meaning_ = 0;
  std::array<std::shared_ptr<const transports::DeviceMemory>, 3>
      direct_;  // by plan::Buffer; null: through slots
  std::string why_not_direct_;
  std::deque<uint32_t> done_;
};

}  // namespace epccl::runtime
