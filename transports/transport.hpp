// What every transport offers.
//
// A transport moves bytes between this rank and the peers it reaches. It knows nothing of collectives. Two faces:
//   MessageTransport  matched send and receive (shm's ring, tcp, ucx, verbs)
//   NodeMemory        (shm/node_memory.hpp) peers' memory as plain addresses, and counters, inside one node
// and a third that a network may have: Lanes, for messages that one rank sends on behalf of others.
// Threading: one thread at a time drives a transport; the communicator's execution lock sees to it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace epccl::device {
class Device;
}

namespace epccl::transports {

struct Completion;

/// Messages that have finished, in that order: for who has thousands under way, and would else look at each of them again and again.
class FinishedMessages {
 public:
  void add(Completion& message);
  /// The one that has waited longest here; null: there is none.
  Completion* take();
  void clear() { first_ = last_ = nullptr; }

 private:
  Completion *first_ = nullptr, *last_ = nullptr;
};

/// State of one message, owned by the caller, at a stable address until done. Never reused while pending.
struct Completion {
  enum class State : uint8_t { idle, pending, done, failed, declined };  // declined: only what was offered
  State state = State::idle;
  uint64_t bytes = 0;             // received: the length the sender sent
  Status status;                  // when failed
  std::optional<uint64_t> found;  // failed since a message of another call came instead: its key

  bool finished() const { return state >= State::done; }

  // For who moves the message:
  /// The last that it does with it.
  void finish(State how) {
    state = how;
    if (told_ != nullptr) told_->add(*this);
  }

  // For who asked for it:
  /// Once it is finished, or has been already, `list` has it, which must stay.
  void tell(FinishedMessages& list) {
    told_ = &list;
    if (finished()) list.add(*this);
  }

 private:
  friend FinishedMessages;
  FinishedMessages* told_ = nullptr;
  Completion* next_ = nullptr;  // in the list
};

inline void FinishedMessages::add(Completion& message) {
  message.next_ = nullptr;
  (last_ != nullptr ? last_->next_ : first_) = &message;
  last_ = &message;
}

inline Completion* FinishedMessages::take() {
  Completion* const message = first_;
  if (message == nullptr) return nullptr;
  first_ = message->next_;
  if (first_ == nullptr) last_ = nullptr;
  return message;
}

/// Names a message between two ranks of one communicator: unique among messages in flight between the two.
/// 47 bits are the caller's.
using MessageKey = uint64_t;
inline constexpr int message_key_bits = 47;
/// Keys with this bit are of no call. Of others all but the lowest bits say of which: a rank sends a call's messages before those of the next
/// one, and receives all of them before it asks for any of that.
inline constexpr MessageKey of_no_call = MessageKey{1} << (message_key_bits - 1);
inline constexpr int message_tag_bits = 22;
constexpr bool of_different_calls(MessageKey one, MessageKey other) {
  return ((one | other) & of_no_call) == 0 && (one ^ other) >> message_tag_bits != 0;
}

/// Plain counters, for statistics and tests ("a two-stage alltoall sends N-1 messages").
struct MessageCounters {
  uint64_t messages_sent = 0, bytes_sent = 0, messages_received = 0, bytes_received = 0, connections = 0;
  // Lanes: writes by this rank as a carrier, and messages that came to it on lanes of others.
  uint64_t lane_writes = 0, messages_by_lane = 0;
};

/// What a rank has asked its network devices for, in work requests, and what they told it.
struct WorkCounters {
  uint64_t sends = 0, writes = 0, signals = 0;  // posted; signals: the writes that end a message's part
  uint64_t signalled = 0;                       // of those, with a completion of their own
  uint64_t inlined = 0;                         // of those, their bytes taken at once
  uint64_t send_completions = 0, receive_completions = 0;
  uint64_t registrations = 0, rails_lost = 0, moved = 0;  // moved: requests that went to another rail
};

/// Lanes: connections beside those of the pairs, on which a rank (the carrier) sends whole messages that others of its node
/// (the origins) have framed for one destination. There a message is matched as if its origin had sent it: by origin and
/// key, whichever way it came. A lane has one direction, and its reader never stops reading it: what may wait there for
/// receives that are not posted yet is bounded by an allowance that each destination gives each origin.
class Lanes {
 public:
  virtual ~Lanes() = default;

  // For the origin.
  /// Bytes that a message takes on a lane; no message may take more than `largest_frame`.
  static constexpr size_t frame_header = 24, largest_frame = 32 << 10;
  static constexpr size_t framed(size_t bytes) { return frame_header + bytes; }
  /// Bytes of frames that this rank may still have on lanes to `destination`. What the destination has taken comes back with
  /// whatever it sends to this rank.
  virtual uint64_t allowance(int destination) = 0;
  /// Writes a message in the form in which lanes carry it to `at`, framed(bytes) long; counts against the allowance.
  virtual void frame(int destination, MessageKey key, const void* data, size_t bytes, std::byte* at) = 0;
  /// Takes `bytes` of frames back that no lane has carried.
  virtual void unframe(int destination, uint64_t bytes) = 0;

  // For the carrier.
  /// Whether the lane is open; begins to open it otherwise. May block at the first call for a destination, for its address.
  virtual bool open(int destination) = 0;
  /// Bytes that the lane takes at once with near certainty; 0 when it is not open.
  virtual size_t room(int destination) = 0;
  /// Sends pieces, each of whole frames (or the rest of one). Returns the bytes the lane took: all of them or, when it is
  /// full or broken, fewer. Never blocks.
  virtual size_t write(int destination, std::span<const iovec> pieces) = 0;
  /// Ends the lane. What it took arrives; of a frame that it took in part nothing does. open() makes another.
  virtual void cut(int destination) = 0;
};

/// A range of a device's memory that a transport sends from and receives into as it lies there (GPUDirect): what
/// MessageTransport::device_memory() gave. Of that transport alone; may end before the messages that use it do.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
};

class MessageTransport {
 public:
  virtual ~MessageTransport() = default;

  virtual const char* name() const = 0;

  /// Starts sending `bytes` from `data` to `peer`. `data` stays untouched until the completion is finished; small
  /// messages usually finish at once. Messages may be sent before the peer has posted the receive.
  virtual Status send(int peer, MessageKey key, const void* data, size_t bytes, Completion& completion) = 0;

  /// Posts a receive for the message `key` of `peer`. A longer message fails the completion (invalid_usage, with both
  /// lengths); a shorter one completes with its length in `completion.bytes`. Where a message of another call comes before this call's, the
  /// two ranks make different calls: a transport on which messages keep their order (tcp) then fails the completion (invalid_usage, `found`).
  virtual Status recv(int peer, MessageKey key, void* data, size_t bytes, Completion& completion) = 0;

  /// The `bytes` at `data`, which `device` owns, for messages that leave from there and arrive there without a copy. Error: why
  /// not; then the caller copies them through host memory. To be asked in each call that uses the memory, since it may have been freed
  /// since and allocated anew; where it has not, the answer is cheap.
  virtual Result<std::shared_ptr<const DeviceMemory>> device_memory(device::Device& /*device*/,
                                                                    const void* /*data*/,
                                                                    uint64_t /*bytes*/) {
    return error(Code::invalid_usage, "{} moves host memory only", name());
  }
  /// As send(), `data` lying in `memory`, of which no work of the device may still be writing it. The other end may be host memory.
  virtual Status send_from(const DeviceMemory& /*memory*/, int /*peer*/, MessageKey /*key*/,
                           const void* /*data*/, size_t /*bytes*/, Completion& /*completion*/) {
    return error(Code::invalid_usage, "{} moves host memory only", name());
  }
  /// As recv(), `data` lying in `memory`. Work that the device's queues are given once the completion is done sees the message.
  virtual Status recv_into(const DeviceMemory& /*memory*/, int /*peer*/, MessageKey /*key*/, void* /*data*/,
                           size_t /*bytes*/, Completion& /*completion*/) {
    return error(Code::invalid_usage, "{} moves host memory only", name());
  }

  /// Moves things on without blocking. True when anything moved.
  virtual bool progress() = 0;

  /// Whether everything whose send has completed has also left this process. While it has not, it needs progress() to do
  /// so: a rank that stops driving the transport before then leaves its peers waiting.
  virtual bool drained() = 0;

  /// A descriptor that becomes readable when progress() has something to do, after arm() returned true; -1 when the
  /// transport has none. arm() false: there is work already, call progress().
  virtual int event_fd() const = 0;
  /// `rarely`: better late and seldom than at once; what is still to come of a message may be waited for. Holds until the
  /// next arm(): whoever goes on without it waits for nothing longer, but may crowd a link.
  virtual bool arm(bool rarely) = 0;

  /// Gives up everything pending (completions fail with remote_error). For abort and for a dead peer.
  virtual void cancel_all() = 0;

  virtual const MessageCounters& counters() const = 0;
  /// Null: what happens below is not this transport's to know.
  virtual const WorkCounters* work_counters() const { return nullptr; }

  /// Null: this transport has none.
  virtual Lanes* lanes() { return nullptr; }
};

/// Fetches the address blobs of peers when a transport first needs them: connections grow with the peers used.
using AddressLookup = std::function<Result<std::vector<std::byte>>(int peer)>;

}  // namespace epccl::transports
