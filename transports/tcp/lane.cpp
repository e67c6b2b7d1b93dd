#include "transports/tcp/lane.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace epccl::transports::tcp {
namespace {

constexpr int wanted_buffer_bytes = 1 << 20;
// Of the kernel's buffer: its bookkeeping takes a part of it, more with many small writes.
constexpr size_t buffer_share = 4;

}  // namespace

// ---- the carrier's end --------------------------------------------------------------------------------------------------

Status OutLane::dial(const net::Endpoint& to, const Hello& hello) {
  to_ = to;
  hello_ = hello;
  EPCCL_ASSIGN(socket_, net::start_connect(to));
  state_ = State::connecting;
  return {};
}

void OutLane::on_events(uint32_t events) {
  if (state_ == State::connecting && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) greet();
  if (state_ == State::proving) hear_verdict();
  // Whoever reads a lane does not write on it: news of reading is its end.
  if (state_ == State::open && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) give_up();
}

void OutLane::greet() {
  if (!net::finish_connect(socket_.get(), to_).ok()) return give_up();
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &wanted_buffer_bytes, sizeof wanted_buffer_bytes);
  int granted = 0;
  socklen_t length = sizeof granted;
  getsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &granted, &length);
  buffer_bytes_ = static_cast<size_t>(std::max(granted, 0)) / buffer_share;
  if (::send(socket_.get(), &hello_, sizeof hello_, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello_))
    return give_up();
  state_ = State::proving;
}

void OutLane::hear_verdict() {
  char verdict = 0;
  const ssize_t got = ::recv(socket_.get(), &verdict, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got != 1 || verdict != static_cast<char>(Verdict::welcome)) return give_up();
  state_ = State::open;
}

size_t OutLane::room() const {
  if (state_ != State::open) return 0;
  int queued = 0;
  if (ioctl(socket_.get(), SIOCOUTQ, &queued) != 0 || queued < 0) return 0;
  return buffer_bytes_ - std::min(buffer_bytes_, static_cast<size_t>(queued));
}

size_t OutLane::write(std::span<const iovec> pieces) {
  if (state_ != State::open || pieces.empty()) return 0;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());  // sendmsg only reads
  message.msg_iovlen = pieces.size();
  for (;;) {
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EINTR) continue;
    if (errno != EAGAIN) give_up();
    return 0;
  }
}

void OutLane::cut() {
  socket_.reset();
  if (state_ != State::broken) state_ = State::closed;
}

void OutLane::give_up() {
  socket_.reset();
  state_ = State::broken;
}

// ---- the destination's end ----------------------------------------------------------------------------------------------

Status InLane::read(std::span<std::byte> staging, bool ended, const Deliver& deliver) {
  for (;;) {
    const size_t before = partial_.size();
    std::ranges::copy(partial_, staging.data());
    const ssize_t got = ::recv(socket_.get(), staging.data() + before, staging.size() - before, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return {};
    if (got < 0) return system_error(errno, "lane lost");
    if (got == 0) return error(Code::remote_error, "its lane ended, {} bytes of a frame dropped", before);
    const auto all = staging.first(before + static_cast<size_t>(got));
    EPCCL_ASSIGN(const size_t used, consume(all, deliver));
    partial_.assign(all.begin() + static_cast<ptrdiff_t>(used), all.end());
    // Less than there was room for: the socket is empty, and tells when more comes.
    if (all.size() < staging.size() && !ended) return {};
  }
}

// The bytes of whole frames at the front.
Result<size_t> InLane::consume(std::span<const std::byte> bytes, const Deliver& deliver) const {
  size_t used = 0;
  while (bytes.size() - used >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, bytes.data() + used, sizeof header);
    if (header.key >> message_key_bits != 0 || Lanes::framed(header.bytes) > Lanes::largest_frame)
      return error(Code::remote_error, "a frame with key {:#x} and {} bytes on rank {}'s lane", header.key,
                   header.bytes, carrier_);
    if (bytes.size() - used < Lanes::framed(header.bytes)) break;
    if (!deliver(header, bytes.subspan(used + sizeof header, header.bytes)))
      return error(Code::remote_error,
                   "rank {}'s lane brings a message of rank {}, for which it does not carry", carrier_,
                   header.origin);
    used += Lanes::framed(header.bytes);
  }
  return used;
}

}  // namespace epccl::transports::tcp
