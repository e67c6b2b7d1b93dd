#include "runtime/messages/p2p.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

namespace epccl::runtime {
namespace {

constexpr transports::MessageKey p2p_key = transports::of_no_call;
// Of those, the pieces of messages behind the first.
constexpr transports::MessageKey piece_key = p2p_key | p2p_key >> 1;

// Room for pieces is cut into no smaller slots: there may be many.
constexpr uint64_t least_slot = 16 << 10;

}  // namespace

std::string P2pOperation::text() const {
  return fmt::format("{} of {} {} {} rank {}", is_send ? "send" : "recv", count, datatype,
                     is_send ? "to" : "from", peer);
}

P2p::P2p(const topology::Cluster& cluster, int rank, transports::ShmMessages& shm,
         transports::MessageTransport* network, Carrying& carrying, uint64_t piece_bytes)
    : cluster_(cluster), rank_(rank), shm_(shm), network_(network), carrying_(carrying) {
  if (network != nullptr && piece_bytes > 0) pieces_.emplace(*network, piece_bytes);
}

Status P2p::start(const std::vector<P2pOperation>& operations) {
  ++calls_;
  if (sent_.empty()) {
    sent_.resize(static_cast<size_t>(cluster_.ranks()));
    received_.resize(static_cast<size_t>(cluster_.ranks()));
    sent_pieces_.resize(static_cast<size_t>(cluster_.ranks()));
    received_pieces_.resize(static_cast<size_t>(cluster_.ranks()));
    counted_in_.resize(static_cast<size_t>(cluster_.nodes()));
  }
  for (const P2pOperation& operation : operations)
    if (operation.gpu != nullptr) gpu_ = operation.gpu->messages;
  algorithms::GroupSends sends;
  const auto is_own = [this](const P2pOperation& operation) { return operation.peer == rank_; };
  pending_.clear();
  over_network_ = 0;
  EPCCL_ASSIGN(const std::vector<OwnPair> own, match_own(operations));
  // Of a pair of this rank's own, a GPU may make the one copy.
  in_flight_ = std::vector<InFlight>(operations.size() - own.size());
  auto flight = in_flight_.begin();
  for (const P2pOperation& operation : operations)
    if (!is_own(operation)) enlist(*flight++, operation, sends);
  carrying_.begin(sends);
  gathering_ = false;
  if (std::ranges::any_of(pending_, [](const InFlight* each) { return each->cut != nullptr; }))
    begin_pieces();
  // What neighbours may carry is laid out before anything else: then it finds them still in this call.
  for (InFlight* each : pending_)
    if (each->may_be_carried) EPCCL_TRY(start_remote(*each));
  if (!gathering_) carrying_.lay_out();
  for (InFlight* each : pending_)
    if (!each->may_be_carried) EPCCL_TRY(start_remote(*each));
  EPCCL_TRY(copy_own(own, std::to_address(flight)));
  if (gpu_ != nullptr) stagger();
  return {};
}

// Ranks that start together copy from different peers first.
void P2p::stagger() {
  const auto distance = [this](const InFlight* flight) {
    return (flight->operation.peer - rank_ + cluster_.ranks()) % cluster_.ranks();
  };
  std::ranges::stable_sort(pending_, {}, distance);
}

Status P2p::wait_for_streams(std::span<const P2pOperation> operations) {
  const Turn* last = nullptr;
  for (const P2pOperation& operation : operations) {
    if (operation.gpu == nullptr || operation.gpu->turn.get() == last) continue;
    last = operation.gpu->turn.get();
    EPCCL_TRY(operation.gpu->worker->begun(*last));
  }
  return {};
}

// Keys count the messages of a pair in the order in which they were issued, whichever way each goes.
void P2p::enlist(InFlight& flight, const P2pOperation& operation, algorithms::GroupSends& sends) {
  const auto peer = static_cast<size_t>(operation.peer);
  flight.operation = operation;
  flight.key = p2p_key | (operation.is_send ? sent_ : received_)[peer]++;
  pending_.push_back(&flight);
  flight.over_network = !cluster_.same_node(rank_, operation.peer);
  if (flight.over_network) ++over_network_;
  if (is_cut(flight)) cut(flight);
  const bool in_pieces = flight.cut != nullptr && flight.cut->message.pieces > 1;
  flight.may_be_carried = flight.over_network && operation.is_send && !in_pieces && carrying_.possible() &&
                          operation.bytes <= carrying_.largest();
  if (!flight.may_be_carried) return;
  ++sends.messages;
  sends.bytes += operation.bytes;
  const auto node = static_cast<size_t>(cluster_.node_of(operation.peer));
  if (std::exchange(counted_in_[node], calls_) != calls_) ++sends.nodes;
}

// The n-th send to itself goes to the n-th receive from itself.
Result<std::vector<P2p::OwnPair>> P2p::match_own(std::span<const P2pOperation> operations) const {
  std::vector<const P2pOperation*> sends, receives;
  for (const P2pOperation& operation : operations)
    if (operation.peer == rank_) (operation.is_send ? sends : receives).push_back(&operation);
  if (sends.size() != receives.size())
    return error(Code::invalid_usage, "rank {} sends {} messages to itself and receives {} in one group",
                 rank_, sends.size(), receives.size());
  std::vector<OwnPair> pairs;
  for (size_t i = 0; i < sends.size(); ++i) {
    const P2pOperation &send = *sends[i], &receive = *receives[i];
    if (send.bytes != receive.bytes)
      return error(Code::invalid_usage, "rank {} to itself: {} of {} bytes, {} of {} bytes", rank_,
                   send.text(), send.bytes, receive.text(), receive.bytes);
    pairs.push_back({&send, &receive});
  }
  return pairs;
}

// `next`: for what a GPU copies.
Status P2p::copy_own(std::span<const OwnPair> pairs, InFlight* next) {
  for (const auto& [send, receive] : pairs) {
    if (send->bytes == 0) continue;
    if (send->gpu == nullptr && receive->gpu == nullptr) {
      std::memmove(receive->destination, send->source, send->bytes);
      continue;
    }
    InFlight& flight = *next++;
    flight.operation = *receive;
    flight.gpu = std::make_unique<GpuFlight>();
    flight.gpu->data = static_cast<std::byte*>(receive->destination);
    flight.gpu->bytes = receive->bytes;
    flight.gpu->end = receive->gpu;
    flight.gpu->other_end = send->gpu;
    flight.completion.bytes = receive->bytes;
    pending_.push_back(&flight);
    EPCCL_TRY(gpu_->start_own(*flight.gpu, static_cast<const std::byte*>(send->source)));
  }
  return {};
}

// ---- in pieces

bool P2p::is_cut(const InFlight& flight) const {
  const P2pOperation& operation = flight.operation;
  return flight.over_network && pieces_ &&
         (operation.bytes >= pieces_->piece_bytes() ||
          (operation.gpu != nullptr && operation.gpu->stage != nullptr));
}

void P2p::cut(InFlight& flight) {
  const P2pOperation& operation = flight.operation;
  auto& counter = (operation.is_send ? sent_pieces_ : received_pieces_)[static_cast<size_t>(operation.peer)];
  flight.cut = std::make_unique<Cut>();
  MessagePieces::Message& message = flight.cut->message;
  message.token = reinterpret_cast<uint64_t>(&flight);
  message.peer = operation.peer;
  message.is_send = operation.is_send;
  message.pieces = static_cast<uint32_t>(operation.bytes / pieces_->piece_bytes() + 1);
  message.key = flight.key;
  message.second_key = piece_key | counter;
  counter += message.pieces - 1;
  message.memory = static_cast<std::byte*>(operation.is_send ? const_cast<void*>(operation.source)
                                                             : operation.destination);  // NOLINT: not written
  message.bytes = operation.bytes;
}

void P2p::begin_pieces() {
  using Way = MessagePieces::Message::Way;
  PinnedStage* stage = nullptr;
  uint64_t largest = least_slot;
  std::set<int> sent_to;
  for (InFlight* flight : pending_) {
    const P2pOperation& operation = flight->operation;
    if (flight->cut == nullptr || operation.gpu == nullptr || operation.gpu->stage == nullptr) continue;
    Cut& its = *flight->cut;
    its.lies_in = gpu_->lies_in(
        *operation.gpu,
        {operation.is_send, its.message.memory, operation.bytes, operation.peer, operation.text()},
        *network_);
    its.message.lies_in = its.lies_in.get();
    its.message.way = its.lies_in != nullptr ? Way::direct : Way::staged;
    if (its.lies_in != nullptr) continue;
    its.message.is_held = flight->may_be_carried && carrying_.worthwhile();
    gathering_ |= its.message.is_held;
    stage = operation.gpu->stage;
    largest = std::max(largest, operation.bytes);
    if (operation.is_send) sent_to.insert(operation.peer);
  }
  pieces_->begin(stage, std::min(largest, pieces_->piece_bytes()), static_cast<int>(sent_to.size()));
}

// What lies on a GPU is laid out when all of it has come to the host: a parcel is laid out once.
Status P2p::lay_out_gathered() {
  gathering_ = false;
  EPCCL_TRY(pieces_->hand_over([this](const MessagePieces::Message& message, const std::byte* data,
                                      transports::Completion& completion) {
    return carrying_.offer(message.peer, message.key, data, message.bytes, completion);
  }));
  carrying_.lay_out();
  return {};
}

Result<bool> P2p::move_pieces() {
  EPCCL_ASSIGN(const bool moved, pieces_->move());
  if (gathering_ && !pieces_->gathering()) EPCCL_TRY(lay_out_gathered());
  while (auto ended = pieces_->ended()) {
    transports::Completion& completion =
        reinterpret_cast<InFlight*>(ended->message.token)->completion;  // NOLINT: as cut() gave it
    using State = transports::Completion::State;
    completion.bytes = ended->bytes;
    completion.state = ended->status.ok() ? State::done : State::failed;
    completion.status = std::move(ended->status);
  }
  return moved;
}

// ---- on a GPU of the node

Status P2p::start_on_gpu(InFlight& flight) {
  const P2pOperation& operation = flight.operation;
  flight.gpu = std::make_unique<GpuFlight>();
  GpuFlight& its = *flight.gpu;
  its.is_send = operation.is_send;
  its.data = static_cast<std::byte*>(operation.is_send ? const_cast<void*>(operation.source)
                                                       : operation.destination);  // NOLINT: not written
  its.bytes = operation.bytes;
  its.end = operation.gpu;
  its.local = cluster_.local_of(operation.peer);
  its.key = flight.key;
  return operation.gpu->messages->start(its, flight.completion);
}

Status P2p::start_remote(InFlight& flight) {
  const P2pOperation& operation = flight.operation;
  transports::MessageTransport* transport = flight.over_network ? network_ : &shm_;
  if (transport == nullptr)
    return error(Code::internal_error, "no transport reaches rank {}", operation.peer);
  const int address = flight.over_network ? operation.peer : cluster_.local_of(operation.peer);
  if (flight.cut != nullptr) {
    pieces_->add(flight.cut->message);
    return {};
  }
  if (operation.is_send) drained_ = drained_ && !flight.over_network;
  if (operation.gpu != nullptr && !flight.over_network) return start_on_gpu(flight);
  if (!operation.is_send)
    return transport->recv(address, flight.key, operation.destination, operation.bytes, flight.completion);
  if (flight.may_be_carried &&
      carrying_.offer(address, flight.key, operation.source, operation.bytes, flight.completion))
    return {};
  return transport->send(address, flight.key, operation.source, operation.bytes, flight.completion);
}

Result<bool> P2p::progress() {
  bool moved = shm_.progress();
  if (pieces_) {
    EPCCL_ASSIGN(const bool some, move_pieces());
    moved |= some;
  }
  const bool is_driven = pieces_ && pieces_->on_network();
  if (network_ != nullptr && network_pending() && !is_driven) moved |= network_->progress();
  EPCCL_ASSIGN(const bool carried, carrying_.progress());
  moved |= carried;
  EPCCL_ASSIGN(const bool ended, see_ends());
  moved |= ended;
  if (!drained_) moved |= drained_ = network_->drained();
  if (pending_.empty() && drained_ && carrying_.inside()) moved |= carrying_.end();
  // What is due within moments is not slept through, and neighbours that share the core get there sooner.
  if (!moved && carrying_.stays_awake()) {
    sched_yield();
    return true;
  }
  return moved;
}

Result<bool> P2p::see_ends() {
  const size_t before = pending_.size();
  for (size_t i = 0; i < pending_.size();) {
    InFlight& flight = *pending_[i];
    EPCCL_ASSIGN(const bool over, is_over(flight));
    if (!over) {
      ++i;
      continue;
    }
    if (flight.over_network) --over_network_;
    flight.gpu.reset();
    flight.operation.gpu.reset();
    pending_[i] = pending_.back();
    pending_.pop_back();
  }
  if (gpu_ != nullptr && pending_.empty() && before > 0) gpu_->call_over();
  return pending_.size() < before;
}

Result<bool> P2p::is_over(InFlight& flight) {
  if (flight.completion.state == transports::Completion::State::failed)
    return Status(flight.completion.status).with_context(flight.operation.text());
  bool over = flight.completion.finished();
  if (flight.gpu != nullptr) {
    auto stepped = gpu_->step(*flight.gpu, flight.completion);
    if (!stepped.ok()) return std::move(stepped).take_status().with_context(flight.operation.text());
    over = *stepped;
  }
  if (over) EPCCL_TRY(check_length(flight));
  return over;
}

Status P2p::check_length(const InFlight& flight) const {
  if (flight.operation.is_send || flight.completion.bytes == flight.operation.bytes) return {};
  return error(Code::invalid_usage, "rank {}: {} expects {} bytes, rank {} sent {}", rank_,
               flight.operation.text(), flight.operation.bytes, flight.operation.peer,
               flight.completion.bytes);
}

void P2p::give_up(double seconds) {
  if (pieces_) pieces_->stop();
  // What the network receives into GPU memory as it lies there it may not write any more.
  if (std::ranges::any_of(in_flight_,
                          [](const InFlight& each) { return each.cut != nullptr && each.cut->lies_in; }))
    network_->cancel_all();
  if (gpu_ != nullptr) gpu_->give_up(seconds);
  for (InFlight& flight : in_flight_) {
    flight.operation.gpu.reset();
    if (flight.gpu != nullptr) flight.gpu->end.reset(), flight.gpu->other_end.reset();
  }
}

bool P2p::network_pending() const {
  return !drained_ || over_network_ > 0 || (pieces_ && !pieces_->drained()) || carrying_.pending();
}

std::vector<int> P2p::waited_for() const {
  std::vector<int> peers;
  if (copies_pending()) return peers;  // all of a message may have come
  for (const InFlight* each : pending_) peers.push_back(each->operation.peer);
  std::ranges::sort(peers);
  peers.erase(std::ranges::unique(peers).begin(), peers.end());
  return peers;
}

std::string P2p::waiting_text() const {
  if (pending_.empty())
    return shm_.drained() ? "nothing" : "room for an answer in the ring of a rank of its node";
  const P2pOperation& operation = std::ranges::min(pending_)->operation;  // the first in the array
  return fmt::format("rank {}: {}", operation.peer, operation.text());
}

}  // namespace epccl::runtime
