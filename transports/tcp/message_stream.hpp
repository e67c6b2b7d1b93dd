// Messages between this rank and one peer over one stream socket.
//
//   send(key, data)   [key|length|taken|data][...] ...   -->  recv(key, data), or kept until it is posted
//
// `taken` says how much of what the other rank had carried to this one (lane.hpp) has found its receive here. Carried messages
// join this stream's where they are matched with receives. A rank that leaves says how much it has had carried: what is still
// on lanes then comes after the end of its connection.
//
// A message leaves straight from the sender's memory and, when its receive is posted, arrives straight in the receiver's:
// one system call moves many small messages, and a large one without a copy of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "transports/transport.hpp"

namespace epccl::transports::tcp {

/// What two ranks have had carried by others, in bytes of frames since the beginning.
struct Carried {
  uint64_t sent = 0, acknowledged = 0;  // by this rank; of that, taken there
  uint64_t arrived = 0, taken = 0;      // by the peer; of that, matched with receives here
  uint64_t announced = 0;               // by the peer, in all: known when it leaves
};

class MessageStream {
 public:
  /// `staging` is shared by a transport's streams: nothing stays in it between calls.
  MessageStream(int self, int peer, std::span<std::byte> staging, MessageCounters& counters)
      : self_(self), peer_(peer), staging_(staging), counters_(counters) {}

  /// What was sent before there was a socket goes out now.
  void attach(UniqueFd socket);
  bool attached() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }

  void send(MessageKey key, const void* data, size_t bytes, Completion& completion);
  void recv(MessageKey key, void* data, size_t bytes, Completion& completion);

  /// A whole message of the peer that came on a lane, and what the peer says it has taken.
  void arrive(MessageKey key, std::span<const std::byte> data, uint64_t taken);
  Carried& carried() { return carried_; }

  /// The socket became readable, writable, or was closed by the peer.
  void readable() { may_read_ = true; }
  void writable() { may_write_ = true; }
  void hung_up() { may_read_ = hung_up_ = true; }

  /// Whether the socket counts as readable only when much of the message that is arriving is there, or with its first byte.
  void set_low_water(bool on);

  /// Whether pump() may move something without news from the socket.
  bool has_work() const;
  /// Reads and writes what it can, a bounded share at a time. True when anything moved. A broken connection fails the
  /// stream.
  bool pump();

  /// Fails what is pending and all that comes later, and closes the socket.
  void fail(Status why);
  const Status& failure() const { return failure_; }
  /// Messages of this rank that are not complete; where the stream has failed, that were not then.
  size_t pending() const;

  /// The end, in good order: what the kernel has taken still goes out. Until the deadline it waits for room where the peer is to be told something.
  void close(double deadline);

 private:
  struct Header {
    uint64_t key = 0, bytes = 0, taken = 0;
  };
  // In place of a key: the peer leaves, and has had `bytes` carried.
  static constexpr uint64_t farewell = ~uint64_t{0};
  struct Outgoing {
    Header header;
    const std::byte* data = nullptr;
    size_t written = 0;  // of header and data together
    Completion* completion = nullptr;
  };
  struct Posted {
    MessageKey key = 0;
    std::byte* data = nullptr;
    size_t capacity = 0;
    Completion* completion = nullptr;
  };
  struct Early {  // arrived before its receive
    MessageKey key = 0;
    size_t bytes = 0;
    std::unique_ptr<std::byte[]> data;
    bool carried = false;
  };
  /// The message whose header has been read.
  struct Incoming {
    bool active = false;
    Header header;
    size_t received = 0;
    std::byte* target = nullptr;       // null: its bytes are dropped
    Completion* completion = nullptr;  // null: nobody has asked yet, or was told that it is too long
    std::unique_ptr<std::byte[]> early;
    size_t missing() const { return header.bytes - received; }
  };

  /// Enough is here that nobody asked for, and nobody asks for anything that may lie behind. But of a peer that is gone all is read: its end
  /// lies behind it.
  bool paused() const {
    return !hung_up_ && early_bytes_ >= early_limit && posted_.empty() && incoming_.completion == nullptr;
  }
  bool write_some();
  void written(size_t bytes);
  bool read_some();
  bool expects_large() const;
  void change_low_water(size_t bytes);
  void consume(const std::byte* data, size_t bytes);
  void begin_message();
  void end_message();
  void deliver(const Posted& posted, size_t bytes);
  bool fits(const Posted& posted, size_t bytes) const;
  void take_early(const Posted& posted);
  std::optional<MessageKey> of_another_call(MessageKey wanted) const;
  void refuse(const Posted& posted, MessageKey found);
  void refuse_posted(MessageKey found);
  void take_kept(const Posted& posted, const Early& message);
  Status ended() const;
  void lost(Status why);
  void say_farewell(double deadline);
  bool departed() const { return !departure_.ok(); }
  Status describe(bool sending, size_t bytes) const;
  static void fail(Completion& completion, Status status);

  // More than this is not taken from the socket for receives that nobody has posted: the sender then waits.
  static constexpr size_t early_limit = 1 << 20;

  const int self_, peer_;
  const std::span<std::byte> staging_;
  MessageCounters& counters_;
  UniqueFd socket_;
  size_t pending_at_failure_ = 0;
  Status failure_, departure_;  // departure: the peer has left, and some of its messages are still on lanes
  size_t low_water_ = 1;
  bool may_read_ = false, may_write_ = false, hung_up_ = false;
  int write_error_ = 0;

  std::deque<Outgoing> outgoing_;

  Header header_;  // being read
  size_t header_filled_ = 0;
  Incoming incoming_;
  std::deque<Posted> posted_;  // the first is what comes next, mostly, however many follow
  std::deque<Early> early_;
  size_t early_bytes_ = 0;  // of those that came on this stream
  Carried carried_;
};

}  // namespace epccl::transports::tcp
