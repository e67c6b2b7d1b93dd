// One connection as the hub sees it: received bytes cut into frames, frames to send in a queue. Never blocks.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "base/fork_guard.hpp"
#include "runtime/bootstrap/handshake.hpp"
#include "runtime/bootstrap/roster.hpp"
#include "runtime/bootstrap/wire.hpp"

namespace epccl::runtime {

class HubConnection {
 public:
  enum class Phase : uint8_t {
    hello,       // a stranger that has said nothing
    challenged,  // a stranger that has to prove itself
    member,      // a rank of the group
    closing,     // refused or gone; closes once its queue is sent
  };

  HubConnection(UniqueFd fd, std::string peer_address, double first_deadline)
      : deadline(first_deadline), peer(std::move(peer_address)), fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }

  /// Reads what there is, up to a fair share. False when the connection is at its end; what arrived before
  /// that is still handed out by next().
  bool receive();
  /// The next whole frame.
  Result<std::optional<wire::Frame>> next();

  void enqueue(Roster::Frame frame);
  /// Sends what the socket takes. False when the connection is at its end.
  bool flush();
  bool has_unsent() const { return !unsent_.empty(); }

  /// Why receive(), flush() or enqueue() ended it.
  const Status& end_reason() const { return end_reason_; }

  // What the hub knows of it.
  Phase phase = Phase::hello;
  double deadline = 0;  // strangers and closing ones are dropped then
  std::string peer;     // address, for messages
  Nonce rank_nonce{}, hub_nonce{};
  uint64_t session = 0;  // of a member
  int rank = -1;
  bool watched_for_writing = false;

 private:
  GuardedFd fd_;
  wire::Splitter splitter_;
  std::deque<Roster::Frame> unsent_;
  size_t sent_of_first_ = 0;
  size_t unsent_bytes_ = 0;
  Status end_reason_;
};

}  // namespace epccl::runtime
