#include "runtime/queues/message_pieces.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace epccl::runtime {
namespace {

using transports::Completion;

// Pieces of a message whose receives are posted, and of messages to one peer that are on the wire where no slot is needed.
constexpr uint32_t staged_ahead = 2, unstaged_ahead = 16;

// What fails at once has failed its completion, too, and ends as what fails later.
Status begun(const Completion& completion, Status status) {
  return completion.finished() ? Status{} : std::move(status);
}

}  // namespace

void MessagePieces::begin(PinnedStage* stage, uint64_t largest, int peers, bool by_cores, int blocks) {
  open_.clear();
  pieces_.clear();
  unused_.clear();
  on_wire_.clear();
  held_.clear();
  coming_to_be_held_ = 0;
  holding_ = true;
  spilt_.clear();
  peers_.clear();
  new_receives_.clear();
  unstaged_sends_.clear();
  ended_.clear();
  drained_ = true;
  stage_ = stage;
  most_per_peer_ = 0;
  if (stage_ == nullptr) return;
  for (CopyLine* line : {&stage_->out, &stage_->in}) line->use_cores(by_cores, blocks);
  const uint64_t slot = PinnedStage::aligned(largest);
  stage_->out_slots.cut(slot);
  stage_->in_slots.cut(slot);
  most_per_peer_ = stage_->out_slots.available() / static_cast<size_t>(std::max(peers, 1));
}

void MessagePieces::add(const Message& message) {
  open_.push_back({message});
  if (!message.is_send) return new_receives_.push_back(&open_.back());
  Peer& to = peers_[message.peer];
  to.sends.push_back(&open_.back());
  start_sends(to);
}

MessagePieces::Piece& MessagePieces::take_piece(Open& of) {
  if (unused_.empty()) unused_.push_back(&pieces_.emplace_back());
  Piece& piece = *unused_.back();
  unused_.pop_back();
  piece.of = &of;
  piece.number = of.started++;
  piece.bytes = std::min(piece_bytes_, of.message.bytes - piece.number * piece_bytes_);
  piece.slot = nullptr;
  piece.completion = {};
  return piece;
}

// As many as a peer may have are there for it: none waits for slots that messages to others hold.
void MessagePieces::start_sends(Peer& to) {
  while (!to.sends.empty()) {
    Open& of = *to.sends.front();
    const bool staged = of.message.way == Way::staged;
    if (to.under_way >= (staged ? most_per_peer_ : std::max<size_t>(most_per_peer_, unstaged_ahead))) return;
    Piece& piece = take_piece(of);
    ++to.under_way;
    if (is_staged(piece)) {
      if (is_held(piece)) ++coming_to_be_held_;
      piece.slot = stage_->out_slots.take();
      stage_->out.add({piece.slot, place(piece), piece.bytes}, reinterpret_cast<uint64_t>(&piece));
    } else {
      (is_held(piece) ? held_ : unstaged_sends_).push_back(&piece);
    }
    if (of.started == of.message.pieces) to.sends.pop_front();
  }
}

Status MessagePieces::post(Open& of) {
  Piece& piece = take_piece(of);
  const auto key = key_of(piece);
  const int peer = of.message.peer;
  Completion& completion = piece.completion;
  on_wire_.push_back(&piece);
  if (of.message.way == Way::direct && piece.bytes > 0)
    return begun(completion,
                 network_.recv_into(*of.message.lies_in, peer, key, place(piece), piece.bytes, completion));
  std::byte* to = place(piece);
  if (is_staged(piece)) {
    if (stage_->in_slots.available() > PinnedStage::kept_for_spilt) {
      to = piece.slot = stage_->in_slots.take();
    } else {
      piece.plain = std::make_unique_for_overwrite<std::byte[]>(piece.bytes);  // NOLINT
      to = piece.plain.get();
    }
  }
  return begun(completion, network_.recv(peer, key, to, piece.bytes, completion));
}

Status MessagePieces::start_receives() {
  for (Open* of : std::exchange(new_receives_, {})) {
    const uint32_t ahead = of->message.way == Way::staged ? staged_ahead : unstaged_ahead;
    while (of->started < std::min(of->message.pieces, ahead)) EPCCL_TRY(post(*of));
  }
  return {};
}

Status MessagePieces::start_unstaged_sends() {
  for (Piece* piece : std::exchange(unstaged_sends_, {})) EPCCL_TRY(put_on_wire(*piece));
  return {};
}

// Its completion is going to be finished.
void MessagePieces::wait_for(Piece& piece) {
  drained_ = false;
  on_wire_.push_back(&piece);
}

Status MessagePieces::put_on_wire(Piece& piece) {
  const Message& message = piece.of->message;
  const auto key = key_of(piece);
  wait_for(piece);
  Completion& completion = piece.completion;
  if (message.way == Way::direct && piece.bytes > 0)
    return begun(completion, network_.send_from(*message.lies_in, message.peer, key, place(piece),
                                                piece.bytes, completion));
  const std::byte* const from = piece.slot != nullptr ? piece.slot : place(piece);
  return begun(completion, network_.send(message.peer, key, from, piece.bytes, completion));
}

Status MessagePieces::hand_over(const Taker& take) {
  holding_ = false;
  for (Piece* piece : std::exchange(held_, {})) {
    if (take(piece->of->message, piece->slot, piece->completion))
      wait_for(*piece);
    else
      EPCCL_TRY(put_on_wire(*piece));
  }
  return {};
}

Result<bool> MessagePieces::move() {
  bool moved = !new_receives_.empty() || !unstaged_sends_.empty();
  EPCCL_TRY(start_receives());
  EPCCL_TRY(start_unstaged_sends());
  if (copying()) EPCCL_TRY(poll_copies(moved));
  if (on_network()) EPCCL_TRY(poll_network(moved));
  if (stage_ == nullptr) return moved;
  move_spilt();
  EPCCL_TRY(stage_->out.flush());
  EPCCL_TRY(stage_->in.flush());
  return moved;
}

Status MessagePieces::poll_copies(bool& moved) {
  through_.clear();
  EPCCL_TRY(stage_->out.poll(through_));
  const size_t out = through_.size();
  EPCCL_TRY(stage_->in.poll(through_));
  moved |= !through_.empty();
  for (size_t i = 0; i < through_.size(); ++i) {
    Piece& piece = *reinterpret_cast<Piece*>(through_[i]);
    if (i < out) {
      EPCCL_TRY(filled(piece));
      continue;
    }
    stage_->in_slots.give_back(piece.slot);
    EPCCL_TRY(finish(piece));
  }
  return {};
}

// What lies in its slot leaves.
Status MessagePieces::filled(Piece& piece) {
  if (!is_held(piece)) return put_on_wire(piece);
  --coming_to_be_held_;
  held_.push_back(&piece);
  return {};
}

Status MessagePieces::poll_network(bool& moved) {
  moved |= network_.progress();
  std::vector<Piece*> complete;
  std::erase_if(on_wire_, [&](Piece* piece) {
    if (!piece->completion.finished()) return false;
    complete.push_back(piece);
    return true;
  });
  for (Piece* piece : complete) EPCCL_TRY(completed(*piece));
  moved |= !complete.empty();
  if (!drained_ && network_.drained()) moved = drained_ = true;
  return {};
}

Status MessagePieces::completed(Piece& piece) {
  const Completion& completion = piece.completion;
  Open& of = *piece.of;
  const uint64_t before = piece.number * piece_bytes_;
  if (completion.state == Completion::State::failed) {
    end(of, before,
        before == 0 ? completion.status
                    : Status(completion.status).with_context(fmt::format("from byte {} on", before)));
    return {};
  }
  if (of.message.is_send) {
    if (piece.slot != nullptr) stage_->out_slots.give_back(piece.slot);
    return finish(piece);
  }
  // The sender's last: it says so by its length.
  if (completion.bytes != piece.bytes) {
    end(of, before + completion.bytes);
    return {};
  }
  if (!is_staged(piece)) return finish(piece);
  if (piece.slot == nullptr) {
    spilt_.push_back(&piece);
  } else {
    land(piece);
  }
  return {};
}

void MessagePieces::land(Piece& piece) {
  stage_->in.add({place(piece), piece.slot, piece.bytes}, reinterpret_cast<uint64_t>(&piece));
}

void MessagePieces::move_spilt() {
  for (; !spilt_.empty() && stage_->in_slots.available() > 0; spilt_.pop_front()) {
    Piece& piece = *spilt_.front();
    piece.slot = stage_->in_slots.take();
    std::memcpy(piece.slot, piece.plain.get(), piece.bytes);
    piece.plain.reset();
    land(piece);
  }
}

// What the piece held is free: the next one of the message, or to the peer, may start.
Status MessagePieces::finish(Piece& piece) {
  Open& of = *piece.of;
  unused_.push_back(&piece);
  if (++of.finished == of.message.pieces) end(of, of.message.bytes);
  if (of.message.is_send) {
    Peer& to = peers_[of.message.peer];
    --to.under_way;
    start_sends(to);
    return {};
  }
  return of.started < of.message.pieces ? post(of) : Status{};
}

void MessagePieces::end(Open& of, uint64_t bytes, Status status) {
  if (std::exchange(of.over, true)) return;
  ended_.push_back({of.message, bytes, std::move(status)});
}

std::optional<MessagePieces::Outcome> MessagePieces::ended() {
  if (ended_.empty()) return std::nullopt;
  Outcome outcome = std::move(ended_.front());
  ended_.pop_front();
  return outcome;
}

const MessagePieces::Message* MessagePieces::waiting_for() const {
  const auto open = std::ranges::find(open_, false, &Open::over);
  return open == open_.end() ? nullptr : &open->message;
}

void MessagePieces::stop() {
  if (stage_ == nullptr) return;
  stage_->out.drain();
  stage_->in.drain();
}

}  // namespace epccl::runtime
