#include "transports/shm/shm_messages.hpp"

#include <algorithm>
#include <cstring>

namespace epccl::transports {

using Kind = RingSlot::Kind;

namespace {

// A copy takes less; one whose process was stopped may take for ever.
constexpr double patience_with_readers = 2;

}  // namespace

ShmMessages::ShmMessages(NodeMemory& node, bool can_read)
    : node_(node),
      can_read_(can_read),
      rings_(reinterpret_cast<MessageRing*>(node.segment().rings())),
      peers_(static_cast<size_t>(node.local_size())) {}

MessageRing& ShmMessages::ring(int from, int to) const {
  return rings_[from * node_.local_size() + to];
}

void ShmMessages::finish(Completion& completion, uint64_t bytes) {
  completion.bytes = bytes;
  completion.finish(Completion::State::done);
}

Status ShmMessages::send(int peer, MessageKey key, const void* data, size_t bytes, Completion& completion) {
  if (cancelled_) return error(Code::remote_error, "the communicator was aborted");
  completion.state = Completion::State::pending;
  Outgoing message{Kind::whole, key, static_cast<const std::byte*>(data), bytes, 0, 0, &completion};
  if (bytes > RingSlot::capacity) {
    message.kind = can_read_ ? Kind::buffer : Kind::fragment;
    message.operation = next_operation_++;
  }
  ++counters_.messages_sent;
  counters_.bytes_sent += bytes;
  if (send_at_once(peer, message)) return {};
  peers_[static_cast<size_t>(peer)].outgoing.push_back(message);
  push(peer);
  return {};
}

// A small message, where a slot is free and nothing is queued before it. False: nothing was done.
bool ShmMessages::send_at_once(int peer, Outgoing& message) {
  if (message.kind != Kind::whole || !peers_[static_cast<size_t>(peer)].outgoing.empty()) return false;
  MessageRing& to = ring(node_.local(), peer);
  RingSlot* const slot = to.free_slot();
  if (slot == nullptr) return false;
  write_slot(message, *slot);
  to.publish();
  node_.notify_message(peer);
  return true;
}

Status ShmMessages::recv(int peer, MessageKey key, void* data, size_t bytes, Completion& completion) {
  if (cancelled_) return error(Code::remote_error, "the communicator was aborted");
  completion.state = Completion::State::pending;
  Receive receive{key, static_cast<std::byte*>(data), bytes, &completion};
  if (receive_at_once(peer, receive)) return {};
  Peer& from = peers_[static_cast<size_t>(peer)];
  from.receives.push_back(receive);
  deliver_early(peer, from, key);
  return {};
}

// Where what it wants is the oldest in the ring. False: nothing was done.
bool ShmMessages::receive_at_once(int from, Receive& receive) {
  MessageRing& incoming = ring(from, node_.local());
  const RingSlot* const slot = incoming.front();
  if (slot == nullptr || slot->kind != Kind::whole || slot->key != receive.key) return false;
  deliver_whole(from, receive, *slot);
  incoming.pop();
  node_.notify_message(from);  // room in the ring
  return true;
}

Status ShmMessages::offer(int peer, MessageKey key, const BufferRef& buffer, Completion& completion) {
  if (cancelled_) return error(Code::remote_error, "the communicator was aborted");
  completion.state = Completion::State::pending;
  peers_[static_cast<size_t>(peer)].outgoing.push_back({Kind::offer, key, nullptr, buffer.bytes, 0,
                                                        next_operation_++, &completion,
                                                        std::make_shared<const BufferRef>(buffer)});
  ++counters_.messages_sent;
  counters_.bytes_sent += buffer.bytes;
  push(peer);
  return {};
}

Status ShmMessages::recv_any(int peer, MessageKey key, size_t bytes, Arrival& arrival,
                             Completion& completion) {
  if (cancelled_) return error(Code::remote_error, "the communicator was aborted");
  completion.state = Completion::State::pending;
  arrival = {};
  Peer& from = peers_[static_cast<size_t>(peer)];
  from.receives.push_back({key, nullptr, bytes, &completion, &arrival});
  deliver_early(peer, from, key);
  return {};
}

void ShmMessages::answer(int peer, const Arrival& offer, bool taken) {
  if (taken) {
    ++counters_.messages_received;
    counters_.bytes_received += offer.buffer.bytes;
  }
  say(peer, taken ? Kind::taken : Kind::declined, offer.operation);
}

void ShmMessages::say(int peer, Kind kind, uint64_t operation) {
  peers_[static_cast<size_t>(peer)].outgoing.push_back({kind, 0, nullptr, 0, 0, operation, nullptr});
  ++answers_;
  push(peer);
}

bool ShmMessages::progress() {
  bool moved = false;
  for (int peer = 0; peer < node_.local_size(); ++peer) {
    if (peer == node_.local()) continue;
    moved |= drain(peer);
    moved |= push(peer);
  }
  return moved;
}

// Moves what is queued for `peer` into its ring while there is room.
bool ShmMessages::push(int peer) {
  auto& outgoing = peers_[static_cast<size_t>(peer)].outgoing;
  if (outgoing.empty()) return false;
  MessageRing& to = ring(node_.local(), peer);
  bool moved = false;
  while (!outgoing.empty()) {
    RingSlot* slot = to.free_slot();
    if (slot == nullptr) break;
    const bool whole = write_slot(outgoing.front(), *slot);
    to.publish();
    moved = true;
    if (whole) outgoing.pop_front();
  }
  if (moved) node_.notify_message(peer);
  return moved;
}

// True when the message needs no further slot.
bool ShmMessages::write_slot(Outgoing& message, RingSlot& slot) {
  slot.kind = message.kind;
  slot.key = message.key;
  slot.bytes = message.bytes;
  slot.operation = message.operation;
  if (message.kind == Kind::taken || message.kind == Kind::declined) {
    --answers_;
    return true;
  }
  if (message.kind == Kind::buffer || message.kind == Kind::offer) {
    slot.buffer =
        message.offered != nullptr ? *message.offered : NodeMemory::describe(message.data, message.bytes);
    waiting_for_taken_[message.operation] = message.completion;
    return true;
  }
  slot.offset = message.sent;
  slot.length = static_cast<uint32_t>(std::min(RingSlot::capacity, message.bytes - message.sent));
  if (slot.length > 0) std::memcpy(slot.payload.data(), message.data + message.sent, slot.length);
  message.sent += slot.length;
  if (message.sent < message.bytes) return false;
  finish(*message.completion, message.bytes);
  return true;
}

bool ShmMessages::drain(int from) {
  MessageRing& incoming = ring(from, node_.local());
  Peer& peer = peers_[static_cast<size_t>(from)];
  bool moved = false;
  for (RingSlot* slot = incoming.front(); slot != nullptr && !can_wait(peer, incoming, *slot);
       slot = incoming.front()) {
    switch (slot->kind) {
      case Kind::whole:
        take_whole(peer, *slot);
        break;
      case Kind::fragment:
        take_fragment(peer, *slot);
        break;
      case Kind::buffer:
        take_buffer(from, peer, *slot);
        break;
      case Kind::offer:
        take_offer(from, peer, *slot);
        break;
      case Kind::taken:
      case Kind::declined:
        hear(*slot);
        break;
    }
    incoming.pop();
    moved = true;
  }
  if (moved) node_.notify_message(from);  // room in the ring
  return moved;
}

// A message without a receive stays in the ring, where its receive will find it, unless this rank waits for something that may lie
// behind it, or the ring gets full.
bool ShmMessages::can_wait(const Peer& peer, const MessageRing& ring, const RingSlot& slot) const {
  return slot.kind == Kind::whole && peer.receives.empty() && !peer.partial.active &&
         waiting_for_taken_.empty() && ring.filled() < MessageRing::slots / 2;
}

/// The receiver's answer to a description.
void ShmMessages::hear(const RingSlot& slot) {
  const auto it = waiting_for_taken_.find(slot.operation);
  if (it == waiting_for_taken_.end()) return;
  it->second->bytes = 0;
  it->second->finish(slot.kind == Kind::declined ? Completion::State::declined : Completion::State::done);
  waiting_for_taken_.erase(it);
}

/// False: the message is too long, and the receive has failed.
bool ShmMessages::make_room(Receive& receive, uint64_t bytes, int from) {
  if (bytes <= receive.bytes) {
    if (receive.arrival == nullptr) return true;
    receive.arrival->data = std::make_unique_for_overwrite<std::byte[]>(bytes);
    receive.data = receive.arrival->data.get();
    return true;
  }
  receive.completion->status = error(Code::invalid_usage, "local rank {} sent {} bytes where {} are expected",
                                     from, bytes, receive.bytes);
  receive.completion->finish(Completion::State::failed);
  return false;
}

/// The receive of that key, which is none of the posted ones any more; without a completion where there is none.
ShmMessages::Receive ShmMessages::take_posted(Peer& peer, MessageKey key) {
  const auto it = std::ranges::find(peer.receives, key, &Receive::key);
  if (it == peer.receives.end()) return {};
  const Receive receive = *it;
  peer.receives.erase(it);
  return receive;
}

void ShmMessages::take_whole(Peer& peer, const RingSlot& slot) {
  Receive receive = take_posted(peer, slot.key);
  if (receive.completion != nullptr)
    return deliver_whole(static_cast<int>(&peer - peers_.data()), receive, slot);
  ++counters_.messages_received;
  counters_.bytes_received += slot.bytes;
  Early& early = peer.early[slot.key];
  early.data.assign(slot.payload.begin(), slot.payload.begin() + slot.length);
  early.received = early.bytes = slot.bytes;
}

void ShmMessages::deliver_whole(int from, Receive& receive, const RingSlot& slot) {
  ++counters_.messages_received;
  counters_.bytes_received += slot.bytes;
  if (!make_room(receive, slot.bytes, from)) return;
  if (slot.length > 0) std::memcpy(receive.data, slot.payload.data(), slot.length);
  finish(*receive.completion, slot.bytes);
}

void ShmMessages::take_fragment(Peer& peer, const RingSlot& slot) {
  Partial& partial = peer.partial;
  if (!partial.active) {
    partial = {true, slot.key, {}, false};
    partial.receive = take_posted(peer, slot.key);
    if (partial.receive.completion != nullptr) {
      partial.dropped = !make_room(partial.receive, slot.bytes, static_cast<int>(&peer - peers_.data()));
      if (partial.dropped) partial.receive = {};  // it has failed, and is its owner's again
    } else {
      Early& early = peer.early[slot.key];
      early.data.resize(slot.bytes);
      early.bytes = slot.bytes;
    }
  }
  const bool last = slot.offset + slot.length == slot.bytes;
  if (partial.receive.completion != nullptr) {
    std::memcpy(partial.receive.data + slot.offset, slot.payload.data(), slot.length);
    if (last) finish(*partial.receive.completion, slot.bytes);
  } else if (!partial.dropped) {
    Early& early = peer.early[slot.key];
    std::memcpy(early.data.data() + slot.offset, slot.payload.data(), slot.length);
    early.received += slot.length;
    if (last) deliver_early(static_cast<int>(&peer - peers_.data()), peer, slot.key);
  }
  if (!last) return;
  partial = {};  // the completion is its owner's again
  ++counters_.messages_received;
  counters_.bytes_received += slot.bytes;
}

void ShmMessages::take_buffer(int from, Peer& peer, const RingSlot& slot) {
  const Receive receive = take_posted(peer, slot.key);
  if (receive.completion == nullptr) {
    Early& early = peer.early[slot.key];
    early.is_buffer = true;
    early.bytes = slot.bytes;
    early.operation = slot.operation;
    early.buffer = slot.buffer;
    return;
  }
  copy_from_sender(from, slot.buffer, slot.bytes, slot.operation, receive);
}

void ShmMessages::take_offer(int from, Peer& peer, const RingSlot& slot) {
  if (const Receive receive = take_posted(peer, slot.key); receive.completion != nullptr)
    return deliver_offer(from, peer, receive, slot.buffer, slot.operation);
  Early& early = peer.early[slot.key];
  early.is_offer = true;
  early.operation = slot.operation;
  early.buffer = slot.buffer;
}

// Who receives into the host's memory wants the message itself, and goes on waiting for it.
void ShmMessages::deliver_offer(int from, Peer& peer, const Receive& receive, const BufferRef& buffer,
                                uint64_t operation) {
  if (receive.arrival == nullptr) {
    peer.receives.push_front(receive);
    return say(from, Kind::declined, operation);
  }
  *receive.arrival = {true, buffer, operation, nullptr};
  finish(*receive.completion, buffer.bytes);
}

void ShmMessages::copy_from_sender(int from, const BufferRef& buffer, uint64_t bytes, uint64_t operation,
                                   Receive receive) {
  ++counters_.messages_received;
  counters_.bytes_received += bytes;
  if (make_room(receive, bytes, from)) {
    Status status = read_sent(from, buffer, receive.data, bytes);
    if (status.ok()) {
      finish(*receive.completion, bytes);
    } else {
      receive.completion->status = std::move(status);
      receive.completion->finish(Completion::State::failed);
    }
  }
  // Also after a failure: the sender's buffer is not needed any more.
  say(from, Kind::taken, operation);
}

// A sender that has given up has given its buffer back, maybe to be used for something else.
Status ShmMessages::read_sent(int from, const BufferRef& buffer, std::byte* into, uint64_t bytes) {
  if (!node_.begin_reading(from))
    return error(Code::remote_error, "local rank {} has given up what it sent", from);
  auto address = node_.address_of(from, buffer);
  Status status = std::move(address).take_status();
  if (address.ok() && *address != nullptr)
    std::memcpy(into, *address, bytes);
  else if (address.ok())
    status = node_.read(from, buffer, 0, into, bytes);
  node_.end_reading(from);
  return status;
}

void ShmMessages::deliver_early(int from, Peer& peer, MessageKey key) {
  const auto early = peer.early.find(key);
  if (early == peer.early.end()) return;
  const bool is_description = early->second.is_buffer || early->second.is_offer;
  if (!is_description && early->second.received < early->second.bytes) return;  // more fragments to come
  Receive receive = take_posted(peer, key);
  if (receive.completion == nullptr) return;
  const Early message = std::move(early->second);
  peer.early.erase(early);
  if (message.is_offer) return deliver_offer(from, peer, receive, message.buffer, message.operation);
  if (message.is_buffer)
    return copy_from_sender(from, message.buffer, message.bytes, message.operation, receive);
  if (!make_room(receive, message.bytes, from)) return;
  if (message.bytes > 0) std::memcpy(receive.data, message.data.data(), message.bytes);
  finish(*receive.completion, message.bytes);
}

void ShmMessages::cancel_all() {
  cancelled_ = true;
  const auto fail = [](Completion* completion) {
    if (completion == nullptr || completion->finished()) return;
    completion->status = error(Code::remote_error, "given up: the communicator failed or was aborted");
    completion->finish(Completion::State::failed);
  };
  for (Peer& peer : peers_) {
    for (Outgoing& message : peer.outgoing) fail(message.completion);
    for (const Receive& receive : peer.receives) fail(receive.completion);
    fail(peer.partial.receive.completion);
    peer.outgoing.clear();
    peer.receives.clear();
    peer.partial = {};
  }
  if (!waiting_for_taken_.empty()) static_cast<void>(node_.end_offers_and_wait(patience_with_readers));
  for (auto& [operation, completion] : waiting_for_taken_) fail(completion);
  waiting_for_taken_.clear();
  answers_ = 0;
}

}  // namespace epccl::transports
