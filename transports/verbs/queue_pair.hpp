// A reliable connection with one peer over one rail: what is posted to it, in order, until it has been acknowledged.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>

#include "transports/verbs/rail.hpp"
#include "transports/verbs/wire.hpp"

namespace epccl::transports::verbs {

using transports::WorkCounters;

struct WorkRequest {
  enum class Kind : uint8_t { message, write, signal };
  Kind kind = Kind::message;
  uint8_t small_bytes = 0;  // of `small`, for messages without a slot
  int32_t slot = -1;        // in which the message is
  const std::byte* data = nullptr;
  uint32_t bytes = 0;
  uint32_t local_key = 0, remote_key = 0, signal = 0;
  uint64_t remote = 0;
  void* owner =
      nullptr;  // of a write or signal: the message; it is told when the signal has been acknowledged
  std::array<std::byte, 96> small{};
};

class QueuePair {
 public:
  /// In the state in which it waits for the peer's end. Errors: the device has no more.
  static Result<std::unique_ptr<QueuePair>> create(Rail& rail, size_t rail_index, uint32_t id, int peer,
                                                   WorkCounters& counters);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// This end.
  End end() const;
  /// Ready to receive and to send.
  Status connect(const End& other);

  Rail& rail() const { return rail_; }
  size_t rail_index() const { return rail_index_; }
  int peer() const { return peer_; }
  uint32_t id() const { return id_; }
  uint32_t number() const { return pair_->qp_num; }
  /// "rank 3 over mlx5_0 port 1".
  std::string path() const { return fmt::format("rank {} over {}", peer_, rail_.port().name()); }

  /// Posts it, or keeps it until there is room. `acknowledge`: its owner waits for it.
  Status submit(const WorkRequest& request);
  /// Posts what was kept. True when anything was.
  Result<bool> flush();
  bool has_waiting() const { return !waiting_.empty(); }
  bool has_unacknowledged() const { return !posted_.empty(); }

  /// A completion has come: everything up to the request it belongs to is acknowledged. `tell(request)` for each.
  template <typename Tell>
  void acknowledged(Tell tell) {
    while (!posted_.empty()) {
      const Posted entry = posted_.front();
      retire(entry);
      posted_.pop_front();
      if (entry.request.kind == WorkRequest::Kind::signal) tell(entry.request);
      if (entry.signalled) break;
    }
  }
  /// Counts a message or signal that came.
  void count_received() { ++received_; }
  uint64_t received() const { return received_; }

  /// Has a completion come with the last request, if it has none of its own.
  Status ask_for_end();

  /// No more: nothing is sent and nothing received. Completions of what was posted come with an error.
  void stop();
  bool stopped() const { return stopped_; }
  /// Both ends are connected; until then nothing is submitted.
  bool usable() const { return usable_ && !stopped_; }
  void set_usable() { usable_ = true; }
  /// What the peer has not received, of which it says how much it has: to be submitted again elsewhere. What it has is told as
  /// acknowledged.
  template <typename Tell, typename Again>
  void hand_over(uint64_t peer_received, Tell tell, Again again) {
    for (const Posted& entry : posted_) {
      const bool arrived = entry.ordinal < peer_received;
      if (!arrived) again(entry.request);
      retire(entry);
      if (arrived && entry.request.kind == WorkRequest::Kind::signal) tell(entry.request);
    }
    posted_.clear();
    for (const WorkRequest& request : waiting_) {
      again(request);
      if (request.slot >= 0) rail_.free_slot(request.slot);
    }
    waiting_.clear();
  }

 private:
  struct Posted {
    WorkRequest request;
    bool signalled = false;
    uint64_t ordinal = 0;  // messages and signals posted before it
  };

  QueuePair(Rail& rail, size_t rail_index, uint32_t id, int peer, WorkCounters& counters);
  Status create();
  bool has_room() const;
  Result<bool> post(const WorkRequest& request);
  void retire(const Posted& entry);

  static constexpr size_t depth = 128;

  Rail& rail_;
  const size_t rail_index_;
  const uint32_t id_;
  const int peer_;
  WorkCounters& counters_;
  Owned<ibv_qp> pair_;
  uint32_t first_packet_ = 0, max_inline_ = 0;
  bool stopped_ = false, usable_ = false;
  std::deque<Posted> posted_;
  std::deque<WorkRequest> waiting_;
  size_t unsignalled_ = 0;
  uint64_t sent_ = 0, received_ = 0;  // messages and signals
};

}  // namespace epccl::transports::verbs
