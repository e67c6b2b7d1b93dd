// Lanes over TCP: one-way connections on which a carrier sends what ranks of its node have framed for one destination.
//
//   carrier                                          destination
//     ---- Hello (lane = 1) ---------------------->    admitted, or closed
//     <--- Verdict: welcome ----------------------
//     ---- [origin|key|length|taken|data] ... ---->    each frame goes to the origin's messages once it is whole
//
// Nothing is sent before the verdict: what the lane's socket takes is then as good as delivered while the destination lives.
// The destination never writes behind the verdict, so a lane can be ended at any time without losing what it took.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/net.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "transports/tcp/tcp_handshake.hpp"
#include "transports/transport.hpp"

namespace epccl::transports::tcp {

/// What stands before the data of a message on a lane.
struct FrameHeader {
  uint64_t key = 0;
  uint32_t bytes = 0;
  int32_t origin = -1;
  uint64_t taken = 0;  // of what the destination has had carried to the origin
};
static_assert(sizeof(FrameHeader) == Lanes::frame_header);

/// The carrier's end.
class OutLane {
 public:
  enum class State : uint8_t {
    closed,
    connecting,
    proving,  // Hello is out, the verdict is not in
    open,
    broken,  // refused, or the destination is gone: not tried again
  };

  State state() const { return state_; }
  int fd() const { return socket_.get(); }
  /// Begins to connect.
  Status dial(const net::Endpoint& to, const Hello& hello);
  /// The socket has news.
  void on_events(uint32_t events);
  /// Bytes that the socket takes at once with near certainty.
  size_t room() const;
  size_t write(std::span<const iovec> pieces);
  void cut();
  /// Ends it for good.
  void give_up();

 private:
  void greet();
  void hear_verdict();

  State state_ = State::closed;
  UniqueFd socket_;
  net::Endpoint to_;
  Hello hello_;
  size_t buffer_bytes_ = 0;
};

/// The destination's end.
class InLane {
 public:
  /// A whole frame; false when its header cannot be true.
  using Deliver = std::function<bool(const FrameHeader& header, std::span<const std::byte> data)>;

  InLane(int carrier, UniqueFd socket) : carrier_(carrier), socket_(std::move(socket)) {}

  int carrier() const { return carrier_; }
  int fd() const { return socket_.get(); }
  /// Reads what there is. `ended`: the carrier has ended the lane, so that there is an end to find. `staging` has room for two of the largest frames. Error: the lane is at its end; the frame that had
  /// come in part is dropped, its origin sends it another way.
  Status read(std::span<std::byte> staging, bool ended, const Deliver& deliver);

 private:
  Result<size_t> consume(std::span<const std::byte> bytes, const Deliver& deliver) const;

  int carrier_;
  UniqueFd socket_;
  std::vector<std::byte> partial_;
};

}  // namespace epccl::transports::tcp
