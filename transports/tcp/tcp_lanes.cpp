// The lanes of the tcp transport: opening them, and what comes on those of others.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "transports/tcp/event_tag.hpp"
#include "transports/tcp/tcp_transport.hpp"

namespace epccl::transports {

using tcp::Hello;

namespace {

// What one destination keeps for one origin whose receives it has not posted. A call's frame and that of the call before may be
// under way when a rank frames the next: the destination's word of the latter comes with its own next message.
constexpr uint64_t allowance_bytes = 96 << 10;

}  // namespace

// ---- as an origin -------------------------------------------------------------------------------------------------------

uint64_t TcpTransport::allowance(int destination) {
  const tcp::Carried& carried = peer_at(destination).stream.carried();
  return allowance_bytes - std::min(allowance_bytes, carried.sent - carried.acknowledged);
}

void TcpTransport::frame(int destination, MessageKey key, const void* data, size_t bytes, std::byte* at) {
  tcp::Carried& carried = peer_at(destination).stream.carried();
  const tcp::FrameHeader header{key, static_cast<uint32_t>(bytes), rank_, carried.taken};
  std::memcpy(at, &header, sizeof header);
  if (bytes > 0) std::memcpy(at + sizeof header, data, bytes);
  carried.sent += framed(bytes);
}

void TcpTransport::unframe(int destination, uint64_t bytes) {
  peer_at(destination).stream.carried().sent -= bytes;
}

// ---- as a carrier -------------------------------------------------------------------------------------------------------

bool TcpTransport::open(int destination) {
  if (!cancelled_.ok()) return false;
  tcp::OutLane& lane = out_lanes_[destination];
  if (lane.state() == tcp::OutLane::State::closed) {
    if (const Status status = dial_lane(destination, lane); !status.ok()) {
      lane.give_up();
      log::info(log::net, rank_, "no lane to rank {}: {}", destination, status.message());
    }
  }
  return lane.state() == tcp::OutLane::State::open;
}

Status TcpTransport::dial_lane(int destination, tcp::OutLane& lane) {
  EPCCL_ASSIGN(const std::vector<std::byte> blob, lookup_(destination));
  EPCCL_ASSIGN(const tcp::Address address, tcp::Address::decode(blob));
  Hello hello;
  hello.cookie = address.cookie;
  hello.from = rank_;
  hello.to = destination;
  hello.lane = 1;
  EPCCL_TRY(lane.dial(address.endpoint, hello));
  return watch(lane.fd(), tcp::tag(tcp::Class::out_lane, static_cast<uint64_t>(destination)));
}

size_t TcpTransport::room(int destination) {
  const auto lane = out_lanes_.find(destination);
  return lane == out_lanes_.end() ? 0 : lane->second.room();
}

size_t TcpTransport::write(int destination, std::span<const iovec> pieces) {
  const auto lane = out_lanes_.find(destination);
  if (lane == out_lanes_.end()) return 0;
  const size_t taken = lane->second.write(pieces);
  if (taken > 0) ++counters_.lane_writes;
  return taken;
}

void TcpTransport::cut(int destination) {
  if (const auto lane = out_lanes_.find(destination); lane != out_lanes_.end()) lane->second.cut();
}

// ---- as a destination ---------------------------------------------------------------------------------------------------

bool TcpTransport::admit_lane(Stranger& stranger) {
  const int carrier = stranger.hello.from;
  const auto node = [this](int rank) { return options_.node_of[static_cast<size_t>(rank)]; };
  if (options_.node_of.empty() || node(carrier) == node(rank_)) return false;
  const uint64_t what = tcp::tag(tcp::Class::in_lane, stranger.number);
  epoll_event event{EPOLLIN | EPOLLRDHUP | EPOLLET, {.u64 = what}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stranger.socket.get(), &event) != 0) return false;
  const auto verdict = tcp::Verdict::welcome;
  if (::send(stranger.socket.get(), &verdict, 1, MSG_NOSIGNAL) != 1) return false;
  in_lanes_.emplace(stranger.number, tcp::InLane(carrier, std::move(stranger.socket)));
  return true;
}

void TcpTransport::on_in_lane(uint64_t number, uint32_t events) {
  const auto found = in_lanes_.find(number);
  if (found == in_lanes_.end()) return;
  tcp::InLane& lane = found->second;
  const bool ended = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  const Status status = lane.read(staging_, ended, [this, &lane](const tcp::FrameHeader& header, auto data) {
    return deliver(lane.carrier(), header, data);
  });
  if (status.ok()) return;
  log::info(log::net, rank_, "rank {}: {}", lane.carrier(), status.message());
  in_lanes_.erase(found);
}

bool TcpTransport::deliver(int carrier, const tcp::FrameHeader& header, std::span<const std::byte> data) {
  const auto node = [this](int rank) { return options_.node_of[static_cast<size_t>(rank)]; };
  if (header.origin < 0 || header.origin >= ranks_ || node(header.origin) != node(carrier)) return false;
  peer_at(header.origin).stream.arrive(header.key, data, header.taken);
  return true;
}

}  // namespace epccl::transports
