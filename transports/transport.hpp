// What every transport offers, asked for by capability and never by name.
//
// A transport moves bytes between this rank and the peers it reaches. It knows nothing of collectives. Two faces:
//   MessageTransport  matched send and receive (shm's ring and ucx)
//   NodeMemory        (shm/node_memory.hpp) peers' memory as plain addresses, and counters, inside one node
// Threading: one thread at a time drives a transport; the communicator's execution lock sees to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace epccl::transports {

struct Capabilities {
  bool reaches_node = false;       // peers on the same node
  bool reaches_network = false;    // peers on other nodes
  bool needs_cpu_progress = true;  // nothing moves unless progress() is called
  uint64_t max_message = std::numeric_limits<uint64_t>::max();
};

/// State of one message, owned by the caller, at a stable address until done. Never reused while pending.
struct Completion {
  enum class State : uint8_t { idle, pending, done, failed };
  State state = State::idle;
  uint64_t bytes = 0;  // received: the length the sender sent
  Status status;       // when failed
  void* internal = nullptr;

  bool finished() const { return state == State::done || state == State::failed; }
};

/// Names a message between two ranks of one communicator: unique among messages in flight between the two.
/// 47 bits are the caller's.
using MessageKey = uint64_t;
inline constexpr int message_key_bits = 47;

/// Plain counters, for statistics and tests ("a two-stage alltoall sends N-1 messages").
struct MessageCounters {
  uint64_t messages_sent = 0, bytes_sent = 0, messages_received = 0, bytes_received = 0, connections = 0;
};

class MessageTransport {
 public:
  virtual ~MessageTransport() = default;

  virtual const char* name() const = 0;
  virtual Capabilities capabilities() const = 0;

  /// Starts sending `bytes` from `data` to `peer`. `data` stays untouched until the completion is finished; small
  /// messages usually finish at once. Messages may be sent before the peer has posted the receive.
  virtual Status send(int peer, MessageKey key, const void* data, size_t bytes, Completion& completion) = 0;

  /// Posts a receive for the message `key` of `peer`. A longer message fails the completion (invalid_usage, with both
  /// lengths); a shorter one completes with its length in `completion.bytes`.
  virtual Status recv(int peer, MessageKey key, void* data, size_t bytes, Completion& completion) = 0;

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
};

/// Fetches the address blobs of peers when a transport first needs them: connections grow with the peers used.
using AddressLookup = std::function<Result<std::vector<std::byte>>(int peer)>;

}  // namespace epccl::transports
