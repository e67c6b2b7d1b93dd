// Matched send and receive inside a node.
//
//   up to a slot's size     the message itself travels through the ring
//   larger, readable        its description does; the receiver copies straight from the sender's memory (mapped window or
//                           process_vm_readv) and tells the sender
//   larger, not readable    in fragments through the ring
//   a device's memory       offered: its description travels, and the receiver has its own device copy
//
// What comes before its receive stays in the ring where it holds up nothing, else it is kept aside.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transports/shm/message_ring.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/transport.hpp"

namespace epccl::transports {

/// What came for a receive that takes offers, too.
struct Arrival {
  bool is_offer = false;
  // An offer: where the message lies. To be answered.
  BufferRef buffer;
  uint64_t operation = 0;
  // Else the message.
  std::unique_ptr<std::byte[]> data;
};

class ShmMessages final : public MessageTransport {
 public:
  /// Peers are local positions. `can_read`: ranks may read each other's memory (NodeMemory::can_read_peers on all).
  ShmMessages(NodeMemory& node, bool can_read);

  const char* name() const override { return "shm"; }
  Status send(int peer, MessageKey key, const void* data, size_t bytes, Completion& completion) override;
  Status recv(int peer, MessageKey key, void* data, size_t bytes, Completion& completion) override;

  /// As send(), of memory that the receiver's device can read. The completion is done when that has copied it, or declined: then the
  /// receiver wants the message itself, to be sent under the same key.
  Status offer(int peer, MessageKey key, const BufferRef& buffer, Completion& completion);
  /// As recv(), for whoever can take an offer: the message, of at most `bytes`, or the offer of it.
  Status recv_any(int peer, MessageKey key, size_t bytes, Arrival& arrival, Completion& completion);
  /// `taken`: the message was copied; else it is declined (who does so posts its receive again first).
  void answer(int peer, const Arrival& offer, bool taken);

  bool progress() override;
  /// Whether every sender knows whose memory is not needed any more; what is sent itself is with the receiver, or in its ring.
  bool drained() override { return answers_ == 0; }
  int event_fd() const override { return -1; }  // the node's doorbell rings instead
  bool arm(bool) override { return true; }
  void cancel_all() override;
  const MessageCounters& counters() const override { return counters_; }

 private:
  struct Outgoing {
    RingSlot::Kind kind;
    MessageKey key = 0;
    const std::byte* data = nullptr;
    size_t bytes = 0, sent = 0;
    uint64_t operation = 0;
    Completion* completion = nullptr;
    std::shared_ptr<const BufferRef> offered = {};
  };
  struct Receive {
    MessageKey key = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;
    Completion* completion = nullptr;
    Arrival* arrival = nullptr;  // of a receive that takes offers
  };
  /// A message that was taken out of the ring before its receive was posted.
  struct Early {
    std::vector<std::byte> data;  // complete when data.size() == received
    size_t received = 0;
    bool is_buffer = false, is_offer = false;
    uint64_t bytes = 0, operation = 0;
    BufferRef buffer;
  };
  /// A message of which fragments have come, but not all.
  struct Partial {
    bool active = false;
    MessageKey key = 0;
    Receive receive;  // completion null: into `early`
    bool dropped = false;
  };
  struct Peer {
    std::deque<Outgoing> outgoing;
    std::deque<Receive> receives;  // as posted, which is how their messages come as a rule
    std::map<MessageKey, Early> early;
    Partial partial;
  };

  MessageRing& ring(int from, int to) const;
  bool push(int peer);
  bool write_slot(Outgoing& message, RingSlot& slot);
  bool send_at_once(int peer, Outgoing& message);
  bool receive_at_once(int from, Receive& receive);
  bool drain(int peer);
  bool can_wait(const Peer& peer, const MessageRing& ring, const RingSlot& slot) const;
  void take_whole(Peer& peer, const RingSlot& slot);
  void deliver_whole(int from, Receive& receive, const RingSlot& slot);
  void take_fragment(Peer& peer, const RingSlot& slot);
  void take_buffer(int from, Peer& peer, const RingSlot& slot);
  void copy_from_sender(int from, const BufferRef& buffer, uint64_t bytes, uint64_t operation,
                        Receive receive);
  Status read_sent(int from, const BufferRef& buffer, std::byte* into, uint64_t bytes);
  void deliver_early(int from, Peer& peer, MessageKey key);
  void take_offer(int from, Peer& peer, const RingSlot& slot);
  void deliver_offer(int from, Peer& peer, const Receive& receive, const BufferRef& buffer,
                     uint64_t operation);
  void say(int peer, RingSlot::Kind kind, uint64_t operation);
  void hear(const RingSlot& slot);
  static bool make_room(Receive& receive, uint64_t bytes, int from);
  static Receive take_posted(Peer& peer, MessageKey key);
  void finish(Completion& completion, uint64_t bytes);

  NodeMemory& node_;
  const bool can_read_;
  MessageRing* rings_;
  std::vector<Peer> peers_;
  std::unordered_map<uint64_t, Completion*> waiting_for_taken_;
  uint64_t next_operation_ = 1;
  size_t answers_ = 0;  // `taken` and `declined` that found no room in a ring so far
  bool cancelled_ = false;
  MessageCounters counters_;
};

}  // namespace epccl::transports
