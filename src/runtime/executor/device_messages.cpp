#include "runtime/executor/device_messages.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/executor/message_key.hpp"

namespace epccl::runtime {
namespace {

using transports::Completion;

// Smaller pieces cost more than they are worth, if the user's stage is not smaller itself.
constexpr uint64_t least_piece = 64 << 10;
constexpr uint32_t receives_ahead = 2;  // pieces of a message
constexpr size_t kept_for_spilt = 1;    // slots that no posted receive takes

uint64_t piece_of(uint64_t stage_bytes, int ranks) {
  const uint64_t share = stage_bytes / static_cast<uint64_t>(ranks);
  return std::clamp(share, std::min(least_piece, stage_bytes), stage_bytes);
}

constexpr uint64_t aligned(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + 255) / 256 * 256;
}

}  // namespace

// Room for two pieces to or from every rank.
DeviceMessages::DeviceMessages(device::Device& device, transports::MessageTransport& network,
                               uint64_t stage_bytes, int ranks)
    : device_(device),
      network_(network),
      piece_bytes_(piece_of(stage_bytes, ranks)),
      pool_bytes_(std::max(2 * stage_bytes,
                           (2 * static_cast<uint64_t>(ranks) + kept_for_spilt) * aligned(piece_bytes_))),
      out_slots_(device),
      in_slots_(device) {}

Status DeviceMessages::prepare() {
  EPCCL_TRY(out_slots_.reserve(pool_bytes_));
  EPCCL_TRY(in_slots_.reserve(pool_bytes_));
  EPCCL_ASSIGN(out_, CopyLine::make(device_));
  EPCCL_ASSIGN(in_, CopyLine::make(device_));
  return {};
}

void DeviceMessages::begin(uint64_t sequence, const DeviceProgram& program, const Buffers& buffers) {
  sequence_ = sequence;
  open_.clear();
  pieces_.clear();
  unused_.clear();
  on_wire_.clear();
  spilt_.clear();
  peers_.clear();
  new_receives_.clear();
  direct_sends_.clear();
  done_.clear();
  drained_ = true;
  const uint64_t slot = aligned(program.largest_piece);
  out_slots_.cut(slot);
  in_slots_.cut(slot);
  most_per_peer_ = out_slots_.available() / static_cast<size_t>(std::max(program.peers, 1));
  find_direct(program, buffers);
}

// To be asked anew for each call: memory may have been freed and allocated since.
void DeviceMessages::find_direct(const DeviceProgram& program, const Buffers& buffers) {
  const CompiledPlan& plan = program.plan;
  const std::array bytes{plan.input_bytes, plan.output_bytes, plan.scratch_bytes};
  direct_ = {};
  why_not_direct_.clear();
  for (size_t buffer = 0; buffer < buffers.size(); ++buffer) {
    if (!program.in_messages[buffer] || bytes[buffer] == 0) continue;
    auto memory = network_.device_memory(device_, buffers[buffer], bytes[buffer]);
    if (memory.ok()) {
      direct_[buffer] = std::move(memory).value();
    } else if (why_not_direct_.empty()) {
      why_not_direct_ = memory.status().message();
    }
  }
}

std::string DeviceMessages::way() const {
  const bool some = std::ranges::any_of(direct_, [](const auto& memory) { return memory != nullptr; });
  if (why_not_direct_.empty()) return some ? "as they lie in GPU memory" : "(none)";
  return fmt::format("{}by way of pinned memory, {} bytes at once at most ({})",
                     some ? "as they lie in GPU memory, and " : "", piece_bytes_, why_not_direct_);
}

void DeviceMessages::add(const Message& message, bool is_send) {
  open_.push_back({message, is_send, pieces_of(message.bytes, piece_bytes_)});
  if (!is_send) return new_receives_.push_back(&open_.back());
  peers_[message.peer].sends.push_back(&open_.back());
  start_sends(message.peer);
}

DeviceMessages::Piece& DeviceMessages::take_piece(Open& of) {
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

std::byte* DeviceMessages::place(const Piece& piece) const {
  return piece.of->message.memory + piece.number * piece_bytes_;
}

// As many as a peer may have are there for it: none waits for slots that messages to others hold.
void DeviceMessages::start_sends(int peer) {
  Peer& to = peers_[peer];
  while (!to.sends.empty() && to.under_way < most_per_peer_) {
    Open& of = *to.sends.front();
    Piece& piece = take_piece(of);
    ++to.under_way;
    if (direct(of) != nullptr) {
      direct_sends_.push_back(&piece);
    } else {
      piece.slot = out_slots_.take();
      out_->add({piece.slot, place(piece), piece.bytes}, reinterpret_cast<uint64_t>(&piece));
    }
    if (of.started == of.pieces) to.sends.pop_front();
  }
}

Status DeviceMessages::post(Open& of) {
  Piece& piece = take_piece(of);
  const auto key = message_key(sequence_, of.message.first_piece + piece.number);
  on_wire_.push_back(&piece);
  if (const auto* memory = direct(of); memory != nullptr)
    return network_.recv_into(*memory, of.message.peer, key, place(piece), piece.bytes, piece.completion);
  if (in_slots_.available() > kept_for_spilt) {
    piece.slot = in_slots_.take();
  } else {
    piece.plain = std::make_unique_for_overwrite<std::byte[]>(piece.bytes);  // NOLINT
  }
  return network_.recv(of.message.peer, key, piece.slot != nullptr ? piece.slot : piece.plain.get(),
                       piece.bytes, piece.completion);
}

Status DeviceMessages::start_receives() {
  for (Open* of : std::exchange(new_receives_, {}))
    while (of->started < std::min(of->pieces, receives_ahead)) EPCCL_TRY(post(*of));
  return {};
}

Status DeviceMessages::start_direct_sends() {
  for (Piece* piece : std::exchange(direct_sends_, {})) EPCCL_TRY(put_on_wire(*piece));
  return {};
}

Status DeviceMessages::put_on_wire(Piece& piece) {
  const Message& message = piece.of->message;
  const auto key = message_key(sequence_, message.first_piece + piece.number);
  drained_ = false;
  on_wire_.push_back(&piece);
  if (const auto* memory = direct(*piece.of); memory != nullptr)
    return network_.send_from(*memory, message.peer, key, place(piece), piece.bytes, piece.completion);
  return network_.send(message.peer, key, piece.slot, piece.bytes, piece.completion);
}

Result<bool> DeviceMessages::move() {
  bool moved = !new_receives_.empty() || !direct_sends_.empty();
  EPCCL_TRY(start_receives());
  EPCCL_TRY(start_direct_sends());
  if (copying()) EPCCL_TRY(poll_copies(moved));
  if (on_network()) EPCCL_TRY(poll_network(moved));
  move_spilt();
  EPCCL_TRY(out_->flush());
  EPCCL_TRY(in_->flush());
  return moved;
}

Status DeviceMessages::poll_copies(bool& moved) {
  through_.clear();
  EPCCL_TRY(out_->poll(through_));
  const size_t out = through_.size();
  EPCCL_TRY(in_->poll(through_));
  moved |= !through_.empty();
  for (size_t i = 0; i < through_.size(); ++i) {
    Piece& piece = *reinterpret_cast<Piece*>(through_[i]);
    if (i < out) {
      EPCCL_TRY(put_on_wire(piece));
      continue;
    }
    in_slots_.give_back(piece.slot);
    EPCCL_TRY(finish(piece));
  }
  return {};
}

Status DeviceMessages::poll_network(bool& moved) {
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

Status DeviceMessages::completed(Piece& piece) {
  const Completion& completion = piece.completion;
  if (completion.state == Completion::State::failed) return completion.status;
  if (piece.of->is_send) {
    if (piece.slot != nullptr) out_slots_.give_back(piece.slot);
    return finish(piece);
  }
  if (completion.bytes != piece.bytes)
    return error(Code::invalid_usage, "rank {} sent {} bytes where {} are expected", piece.of->message.peer,
                 completion.bytes, piece.bytes);
  if (direct(*piece.of) != nullptr) return finish(piece);
  if (piece.slot == nullptr) {
    spilt_.push_back(&piece);
  } else {
    land(piece);
  }
  return {};
}

void DeviceMessages::land(Piece& piece) {
  in_->add({place(piece), piece.slot, piece.bytes}, reinterpret_cast<uint64_t>(&piece));
}

void DeviceMessages::move_spilt() {
  for (; !spilt_.empty() && in_slots_.available() > 0; spilt_.pop_front()) {
    Piece& piece = *spilt_.front();
    piece.slot = in_slots_.take();
    std::memcpy(piece.slot, piece.plain.get(), piece.bytes);
    piece.plain.reset();
    land(piece);
  }
}

// What the piece held is free: the next one of the message, or to the peer, may start.
Status DeviceMessages::finish(Piece& piece) {
  Open& of = *piece.of;
  unused_.push_back(&piece);
  if (++of.finished == of.pieces) done_.push_back(of.message.step);
  if (of.is_send) {
    --peers_[of.message.peer].under_way;
    start_sends(of.message.peer);
    return {};
  }
  return of.started < of.pieces ? post(of) : Status{};
}

std::optional<uint32_t> DeviceMessages::done() {
  if (done_.empty()) return std::nullopt;
  const uint32_t step = done_.front();
  done_.pop_front();
  return step;
}

std::string DeviceMessages::waiting_for() const {
  for (const Open& of : open_) {
    if (of.finished == of.pieces) continue;
    return fmt::format("rank {}: step {} {} of {} bytes over {}", of.message.peer, of.message.step,
                       of.is_send ? "send" : "recv", of.message.bytes, network_.name());
  }
  return drained_ ? "" : "the network to take what was sent";
}

void DeviceMessages::stop() {
  out_->drain();
  in_->drain();
}

}  // namespace epccl::runtime
