#include "runtime/comm/p2p.hpp"

#include <cstring>

namespace epccl::runtime {
namespace {

// Plans use keys below this bit.
constexpr transports::MessageKey p2p_key = transports::MessageKey{1} << (transports::message_key_bits - 1);

}  // namespace

P2p::P2p(const topology::Cluster& cluster, int rank, transports::MessageTransport& shm,
         transports::MessageTransport* network)
    : cluster_(cluster), rank_(rank), shm_(shm), network_(network) {}

Status P2p::start(std::vector<P2pOperation> operations) {
  in_flight_.clear();
  pending_ = 0;
  if (sent_.empty()) {
    sent_.resize(static_cast<size_t>(cluster_.ranks()));
    received_.resize(static_cast<size_t>(cluster_.ranks()));
  }
  std::vector<P2pOperation> own_sends, own_receives;
  for (P2pOperation& operation : operations) {
    if (operation.peer == rank_)
      (operation.is_send ? own_sends : own_receives).push_back(std::move(operation));
    else
      EPCCL_TRY(start_remote(std::move(operation)));
  }
  return match_own(own_sends, own_receives);
}

Status P2p::match_own(std::vector<P2pOperation>& sends, std::vector<P2pOperation>& receives) const {
  if (sends.size() != receives.size())
    return error(Code::invalid_usage, "rank {} sends {} messages to itself and receives {} in one group",
                 rank_, sends.size(), receives.size());
  for (size_t i = 0; i < sends.size(); ++i) {
    if (sends[i].bytes != receives[i].bytes)
      return error(Code::invalid_usage, "rank {} to itself: {} of {} bytes, {} of {} bytes", rank_,
                   sends[i].text, sends[i].bytes, receives[i].text, receives[i].bytes);
    if (sends[i].bytes > 0) std::memmove(receives[i].destination, sends[i].source, sends[i].bytes);
  }
  return {};
}

Status P2p::start_remote(P2pOperation operation) {
  const auto peer = static_cast<size_t>(operation.peer);
  const bool local = cluster_.same_node(rank_, operation.peer);
  transports::MessageTransport* transport = local ? &shm_ : network_;
  if (transport == nullptr)
    return error(Code::internal_error, "no transport reaches rank {}", operation.peer);
  const int address = local ? cluster_.local_of(operation.peer) : operation.peer;
  in_flight_.push_back({std::move(operation), !local, false, {}});
  InFlight& flight = in_flight_.back();
  ++pending_;
  drained_ = drained_ && (local || !flight.operation.is_send);
  if (flight.operation.is_send)
    return transport->send(address, p2p_key | sent_[peer]++, flight.operation.source, flight.operation.bytes,
                           flight.completion);
  return transport->recv(address, p2p_key | received_[peer]++, flight.operation.destination,
                         flight.operation.bytes, flight.completion);
}

Result<bool> P2p::progress() {
  bool moved = shm_.progress();
  if (network_ != nullptr && network_pending()) moved |= network_->progress();
  for (InFlight& flight : in_flight_) {
    if (flight.seen || !flight.completion.finished()) continue;
    if (flight.completion.state == transports::Completion::State::failed)
      return Status(flight.completion.status).with_context(flight.operation.text);
    if (!flight.operation.is_send && flight.completion.bytes != flight.operation.bytes)
      return error(Code::invalid_usage, "rank {}: {} expects {} bytes, rank {} sent {}", rank_,
                   flight.operation.text, flight.operation.bytes, flight.operation.peer,
                   flight.completion.bytes);
    flight.seen = true;
    --pending_;
    moved = true;
  }
  if (!drained_) moved |= drained_ = network_->drained();
  return moved;
}

bool P2p::network_pending() const {
  if (!drained_) return true;
  for (const InFlight& flight : in_flight_)
    if (!flight.seen && flight.over_network) return true;
  return false;
}

std::string P2p::waiting_text() const {
  for (const InFlight& flight : in_flight_)
    if (!flight.seen) return fmt::format("rank {}: {}", flight.operation.peer, flight.operation.text);
  return "nothing";
}

}  // namespace epccl::runtime
