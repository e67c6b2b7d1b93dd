// Messages between this rank and one peer over their queue pairs.
//
//   up to the eager limit     sent at once, into one of the peer's receive buffers, and copied from there
//   larger                    the receiver says where (advert) when the receive is posted; the sender writes there, over all
//                             rails at once, and the last write of each rail brings a signal. The receiver's processor
//                             touches no byte of it.
//
// Small messages beyond the window (more of them than the peer has taken) go the second way, too: what waits at a receiver
// that asks for nothing is bounded, and a message it does ask for always gets through. A sender that has had no advert for a
// while asks for one; so it hears, too, that its message is longer than the receive.
//
// What is sent from a GPU's memory goes the second way whatever its size, so no processor touches it: of a small message the sender
// asks for the advert at once. A small message out of host memory comes without asking; into a GPU's memory the GPU copies it
// (landing.cpp).
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "transports/transport.hpp"
#include "transports/verbs/adverts.hpp"
#include "transports/verbs/device_memory.hpp"
#include "transports/verbs/memory.hpp"
#include "transports/verbs/queue_pair.hpp"
#include "transports/verbs/wire.hpp"

namespace epccl::transports::verbs {

/// What the conversations of a transport share.
struct Shared {
  Shared(RegisteredMemory::Keep keep, LentBy lent) : memory(keep), device_memory(lent) {}
  int rank = 0;
  size_t eager_limit = 0;     // bytes of a message, without header
  uint64_t window = 1 << 20;  // bytes of eager messages that the peer has not taken
  size_t stripe = 128 << 10;  // a part of a message that is worth a rail
  std::vector<std::unique_ptr<Rail>> rails;
  RegisteredMemory memory;  // after the rails: gone before them
  DeviceRegistrations device_memory;
  std::map<device::Device*, std::unique_ptr<device::Queue>> landing_queues;
  size_t landings = 0;
  AdvertTable adverts;
  MessageCounters messages;
  WorkCounters work;
  size_t waiting_sends = 0;  // for adverts, or for room
};

class Conversation {
 public:
  Conversation(int peer, Shared& shared) : peer_(peer), shared_(shared) {}
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  int peer() const { return peer_; }
  /// `memory`: where `data` lies, of a GPU; null: the host's.
  void send(MessageKey key, const void* data, size_t bytes, Completion& completion,
            const DeviceRegion* memory = nullptr);
  void recv(MessageKey key, void* data, size_t bytes, Completion& completion,
            const DeviceRegion* memory = nullptr);

  /// The connection is there: what waited for it goes out. Queue pair i is on rail i.
  void open(std::vector<std::unique_ptr<QueuePair>> pairs);
  bool is_open() const { return open_; }
  const std::vector<std::unique_ptr<QueuePair>>& pairs() const { return pairs_; }

  // What the completion queues tell.
  Status arrived(std::span<const std::byte> message);
  Status signalled(Receive& receive, const Signal& signal);
  void acknowledged(QueuePair& pair);

  /// Moves on what waits for room. True when anything moved.
  bool flush();
  bool has_waiting() const;
  /// Ends receives whose bytes have come to lie where they belong. True when anything moved.
  bool settle_landings();
  /// Asks for adverts that have not come for a while.
  void ask(double now);

  bool has_rail(size_t rail) const {
    return rail < pairs_.size() && pairs_[rail] != nullptr && pairs_[rail]->usable();
  }
  bool has_rail_beside(size_t rail) const;
  /// The rail is lost: its queue pair stops.
  void lose_rail(size_t rail);
  /// The peer has had `received` messages and signals over the lost rail: the others go over another.
  void move_from_rail(size_t rail, uint64_t received);
  /// Whether a lost rail can come back: all that went over it has been settled.
  bool is_settled(size_t rail) const;
  /// A new queue pair for a lost rail; may be used when the peer has connected its end, too.
  void renew_rail(size_t rail, std::unique_ptr<QueuePair> pair);
  void use_rail(size_t rail);

  /// Ends all that is pending and all that comes later. First the queue pairs: nobody writes into a buffer whose receive failed.
  void fail(Status why);
  const Status& failure() const { return failure_; }
  size_t pending() const { return sends_.size() + receives_.size(); }
  bool has_unacknowledged() const;
  void ask_for_end();

 private:
  struct Send {
    MessageKey key = 0;
    const std::byte* data = nullptr;
    size_t bytes = 0;
    Completion* completion = nullptr;
    enum class Stage : uint8_t { fresh, for_advert, writing } stage = Stage::fresh;
    bool asked = false;
    double since = 0;
    uint32_t parts_left = 0;
    Advert advert;
    std::shared_ptr<const Region> region;  // from the start: a GPU's memory
    std::list<Send>::iterator self;
  };
  /// What came before its receive.
  struct Early {
    MessageKey key = 0;
    size_t bytes = 0;
    std::unique_ptr<std::byte[]> data;
    bool asked = false;  // it is still at the sender
  };
  struct KnownAdvert {
    MessageKey key = 0;
    uint32_t id = 0;
    uint64_t bytes = 0;
    Advert advert;
  };

  QueuePair& home() const;
  std::vector<size_t> live_rails() const;
  bool in_window(size_t bytes) const;
  bool send_eager(MessageKey key, const std::byte* data, size_t bytes);
  Status control(Header header, const Advert* advert = nullptr);
  void wait_for_advert(Send& send);
  void begin_write(Send& send, const KnownAdvert& known);
  Status write_parts(Send& send, const KnownAdvert& known);
  /// Whether it is copied into the message, room and window permitting.
  bool may_be_eager(const Send& send) const {
    return send.region == nullptr && send.bytes <= shared_.eager_limit;
  }
  /// Whether the sender is told without asking. Of a small receive it is not, also where that is in a GPU's memory: from host memory
  /// its message may come without asking, and then this advert would have to be taken back, which needs the sender to look again.
  bool needs_advert(const Receive& receive) const { return receive.capacity > shared_.eager_limit; }
  void finish(Send& send, Status status);
  void finish(Receive& receive, size_t bytes);
  void finish(Receive& receive, Status status);
  void remove(Receive& receive);
  void complete_if_whole(Receive& receive);
  void resend(std::span<const std::byte> message);
  bool resend_kept();
  void submit(QueuePair& pair, const WorkRequest& request);
  void on_part_acknowledged(const WorkRequest& request);
  void advertise(Receive& receive);
  void deliver(Receive& receive, const std::byte* data, size_t bytes);
  Status land(Receive& receive, const std::byte* data, size_t bytes);
  Status wait_for_landing(Receive& receive);
  void finish_delivered(Receive& receive);
  void count_taken(size_t bytes);
  std::list<Receive>::iterator find_posted(MessageKey key);
  Status on_eager(const Header& header, std::span<const std::byte> data);
  void on_advert(const Header& header, const Advert& advert);
  void on_ask(const Header& header);
  void on_refused(const Header& header);
  void on_withdraw(const Header& header);
  Status describe(bool sending, size_t bytes, const Status& why) const;
  Status too_long(size_t bytes, size_t capacity) const;

  const int peer_;
  Shared& shared_;
  bool open_ = false;
  Status failure_;
  std::vector<std::unique_ptr<QueuePair>> pairs_;
  std::list<Send> sends_;
  std::list<Receive> receives_, spare_;
  std::deque<Early> early_;
  std::vector<KnownAdvert> adverts_;           // for sends that have not been posted
  std::deque<std::vector<std::byte>> kept_;    // of lost rails, for want of a slot
  size_t fresh_ = 0;                           // sends that have not gone out for want of room
  uint64_t eager_sent_ = 0, eager_taken_ = 0;  // bytes to the peer, and of those met by receives there
  uint64_t taken_ = 0, told_taken_ = 0;        // of the peer's, here
};

}  // namespace epccl::transports::verbs
