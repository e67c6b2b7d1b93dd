#include "transports/tcp/tcp_transport.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/allowed_calls.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "transports/message_check.hpp"
#include "transports/tcp/event_tag.hpp"

namespace epccl::transports {

using tcp::Class;
using tcp::Hello;
using tcp::Verdict;

namespace {

// Room for what may lie behind the message that is being read.
constexpr size_t staging_bytes = 64 << 10;

// The peer's end, or the way to it.
Status not_ours(const Status& failure) {
  return failure.ok() ? Status{} : Status(Code::remote_error, failure.message());
}
/// The same of one that does not answer at its address.
Status not_there(const Status& failure, const net::Endpoint& at) {
  if (failure.ok()) return {};
  const std::string doubt = net::doubt_about(at);
  return {Code::remote_error,
          doubt.empty() ? failure.message() : fmt::format("{} ({})", failure.message(), doubt)};
}

}  // namespace

// ---- opening ------------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(int rank, int ranks, const net::Endpoint& at,
                                                           AddressLookup lookup, TcpOptions options) {
  if (rank < 0 || rank >= ranks) return error(Code::invalid_argument, "rank {} of {} ranks", rank, ranks);
  std::unique_ptr<TcpTransport> transport(new TcpTransport(rank, ranks, std::move(lookup), options));
  EPCCL_TRY(transport->open(at));
  return transport;
}

TcpTransport::TcpTransport(int rank, int ranks, AddressLookup lookup, const TcpOptions& options)
    : rank_(rank),
      ranks_(ranks),
      lookup_(std::move(lookup)),
      options_(options),
      staging_(staging_bytes),
      peers_(static_cast<size_t>(ranks)) {}

Status TcpTransport::open(const net::Endpoint& at) {
  EPCCL_ASSIGN(listener_, address_.listen(at));
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return system_error(errno, "creating an epoll descriptor");
  return watch(listener_.get(), tcp::tag(Class::listener, 0));
}

TcpTransport::~TcpTransport() {
  constexpr double patience = 1;  // seconds
  const double deadline = now_seconds() + patience;
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->stream.close(deadline);
    peer->stream.fail(error(Code::remote_error, "rank {} has closed its connections", rank_));
  }
}

// ---- messages -----------------------------------------------------------------------------------------------------------

Status TcpTransport::send(int peer_rank, MessageKey key, const void* data, size_t bytes,
                          Completion& completion) {
  EPCCL_TRY(check_message({rank_, ranks_}, peer_rank, key, completion, "send to"));
  Peer& peer = peer_at(peer_rank);
  if (peer.state == State::unconnected && peer.stream.failure().ok())
    if (Status status = dial(peer); !status.ok()) fail(peer, std::move(status));
  peer.stream.send(key, data, bytes, completion);
  return outcome(peer, completion);
}

Status TcpTransport::recv(int peer_rank, MessageKey key, void* data, size_t bytes, Completion& completion) {
  EPCCL_TRY(check_message({rank_, ranks_}, peer_rank, key, completion, "receive from"));
  Peer& peer = peer_at(peer_rank);
  peer.stream.recv(key, data, bytes, completion);
  return outcome(peer, completion);
}

Status TcpTransport::outcome(Peer& peer, const Completion& completion) {
  if (peer.stream.has_work()) keep_busy(peer);
  return completion.state == Completion::State::failed ? completion.status : Status();
}

TcpTransport::Peer& TcpTransport::peer_at(int rank) {
  std::unique_ptr<Peer>& peer = peers_[static_cast<size_t>(rank)];
  if (peer == nullptr) {
    peer = std::make_unique<Peer>(rank, rank_, std::span(staging_), counters_);
    if (!cancelled_.ok()) peer->stream.fail(cancelled_);
  }
  return *peer;
}

void TcpTransport::keep_busy(Peer& peer) {
  if (std::exchange(peer.busy, true)) return;
  busy_.push_back(&peer);
}

bool TcpTransport::progress() {
  bool moved = poll_events();
  for (size_t i = 0; i < busy_.size(); ++i) {
    Peer& peer = *busy_[i];
    moved |= pump(peer);
    peer.busy = peer.stream.has_work();
  }
  std::erase_if(busy_, [](const Peer* peer) { return !peer->busy; });
  return moved;
}

bool TcpTransport::arm(bool rarely) {
  if (rarely && !busy_.empty()) return false;
  const bool changes = std::exchange(arms_rarely_, rarely) != rarely;
  if (!rarely && !changes) return busy_.empty();
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    if (rarely || changes) peer->stream.set_low_water(rarely);
    if (changes && peer->stream.attached()) set_send_buffer(peer->stream.fd());
  }
  return busy_.empty();
}

bool TcpTransport::pump(Peer& peer) {
  const bool moved = peer.stream.pump();
  if (!peer.stream.failure().ok()) log_failure(peer);
  return moved;
}

// ---- connecting ---------------------------------------------------------------------------------------------------------

Status TcpTransport::dial(Peer& peer) {
  auto blob = lookup_(peer.rank);
  if (!blob.ok()) return std::move(blob).take_status().with_context("looking up its address");
  EPCCL_ASSIGN(peer.address, tcp::Address::decode(*blob));
  EPCCL_ASSIGN(peer.dialled, net::open_socket_for(peer.address.endpoint));
  const net::Endpoint& at = peer.address.endpoint;
  EPCCL_TRY(not_there(net::start_connect(peer.dialled.get(), at), at));
  peer.state = State::connecting;
  return watch(peer.dialled.get(), tcp::tag(Class::peer, static_cast<uint64_t>(peer.rank)));
}

void TcpTransport::set_stream_options(int fd) const {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  set_send_buffer(fd);
}

void TcpTransport::set_send_buffer(int fd) const {
  if (options_.link_rate <= 0) return;  // the kernel sizes buffers by what it sees
  constexpr double seconds_buffered = 1e-3, least = 64 << 10, most = 16 << 20;
  constexpr double rarely_filled = 8;  // times as large: who is woken for room gets more of it
  const double bytes = std::clamp(options_.link_rate * seconds_buffered, least, most);
  // The kernel doubles what is asked for, for its own bookkeeping.
  const int half = static_cast<int>(std::min(arms_rarely_ ? rarely_filled * bytes : bytes, most) / 2);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &half, sizeof half);
}

void TcpTransport::on_dialled(Peer& peer) {
  const net::Endpoint& at = peer.address.endpoint;
  if (Status status = net::finish_connect(peer.dialled.get(), at); !status.ok())
    return fail(peer, not_there(status, at));
  set_stream_options(peer.dialled.get());
  Hello hello;
  hello.cookie = peer.address.cookie;
  hello.from = rank_;
  hello.to = peer.rank;
  // A new connection's buffer is empty: it takes these few bytes at once.
  if (::send(peer.dialled.get(), &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello))
    return fail(peer, not_ours(system_error(errno, "greeting it")));
  if (rank_ < peer.rank) return open_stream(peer, std::move(peer.dialled));
  peer.state = State::proving;
  on_verdict(peer);
}

void TcpTransport::on_verdict(Peer& peer) {
  char verdict = 0;
  const ssize_t got = ::recv(peer.dialled.get(), &verdict, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got == 1 && verdict == static_cast<char>(Verdict::welcome))
    return open_stream(peer, std::move(peer.dialled));
  if (got < 0 && errno != ECONNRESET)
    return fail(peer, not_ours(system_error(errno, "connection lost before it had accepted it")));
  if (got != 1)
    return fail(peer, error(Code::remote_error, "it closed the connection before it had accepted it"));
  peer.dialled.reset();
  peer.state = State::declined;
}

void TcpTransport::open_stream(Peer& peer, UniqueFd socket) {
  peer.dialled.reset();
  peer.state = State::open;
  peer.stream.attach(std::move(socket));
  ++counters_.connections;
  keep_busy(peer);
  log::trace(log::net, rank_, "connected to rank {}", peer.rank);
}

void TcpTransport::accept() {
  const auto prepare = [this](int fd, uint64_t number) {
    set_stream_options(fd);
    return watch(fd, tcp::tag(Class::stranger, number)).ok();
  };
  strangers_.accept(listener_.get(), rank_, prepare, [this](Stranger& stranger) { return admit(stranger); });
}

/// False when it is not who it should be.
bool TcpTransport::admit(Stranger& stranger) {
  const Hello& hello = stranger.hello;
  if (!is_meant_for(hello, address_.cookie, rank_, ranks_) || !cancelled_.ok()) return false;
  if (hello.lane != 0) return admit_lane(stranger);
  Peer& peer = peer_at(hello.from);
  if (!peer.stream.failure().ok()) return false;
  if (peer.rank > rank_) {
    const bool have_own = peer.state != State::unconnected;  // dialled, or open already
    const Verdict verdict = have_own ? Verdict::declined : Verdict::welcome;
    (void)!::send(stranger.socket.get(), &verdict, 1, MSG_NOSIGNAL);
    if (have_own) return true;
  } else if (peer.state == State::open) {
    return false;
  }
  const uint64_t what = tcp::tag(Class::peer, static_cast<uint64_t>(peer.rank));
  epoll_event event{EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.u64 = what}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stranger.socket.get(), &event) != 0) return false;
  open_stream(peer, std::move(stranger.socket));
  return true;
}

// ---- events -------------------------------------------------------------------------------------------------------------

Status TcpTransport::watch(int fd, uint64_t what) {
  epoll_event event{EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.u64 = what}};
  if (tcp::class_of(what) == Class::listener) event.events = EPOLLIN;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return system_error(errno, "watching a socket");
  return {};
}

bool TcpTransport::poll_events() {
  std::array<epoll_event, 32> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  if (count < 0 && errno != EINTR) fail_all(call_error(errno, "epoll_wait"));
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    handle(event.data.u64, event.events);
  }
  return count > 0;
}

void TcpTransport::handle(uint64_t what, uint32_t events) {
  switch (tcp::class_of(what)) {
    case Class::listener:
      return accept();
    case Class::stranger:
      return strangers_.read(tcp::number_of(what), rank_,
                             [this](Stranger& stranger) { return admit(stranger); });
    case Class::out_lane:
      if (const auto lane = out_lanes_.find(static_cast<int>(tcp::number_of(what))); lane != out_lanes_.end())
        lane->second.on_events(events);
      return;
    case Class::in_lane:
      return on_in_lane(tcp::number_of(what), events);
    case Class::peer:
      if (Peer* const peer = peers_[tcp::number_of(what)].get(); peer != nullptr) on_peer(*peer, events);
  }
}

void TcpTransport::on_peer(Peer& peer, uint32_t events) {
  switch (peer.state) {
    case State::connecting:
      if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) on_dialled(peer);
      return;
    case State::proving:
      return on_verdict(peer);
    case State::open:
      if ((events & EPOLLIN) != 0) peer.stream.readable();
      if ((events & EPOLLOUT) != 0) peer.stream.writable();
      if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) peer.stream.hung_up();
      if (peer.stream.has_work()) keep_busy(peer);
      return;
    case State::unconnected:
    case State::declined:
      return;
  }
}

// ---- the end ------------------------------------------------------------------------------------------------------------

void TcpTransport::fail(Peer& peer, Status why) {
  if (!peer.stream.failure().ok()) return;
  peer.dialled.reset();
  peer.stream.fail(std::move(why));
  log_failure(peer);
}

void TcpTransport::fail_all(const Status& why) {
  for (const auto& peer : peers_)
    if (peer != nullptr) fail(*peer, why);
}

void TcpTransport::log_failure(const Peer& peer) const {
  const size_t pending = peer.stream.pending();
  const std::string& why = peer.stream.failure().message();
  // A peer that left in good order looks the same from here; then nothing is pending.
  if (pending == 0)
    log::info(log::net, rank_, "rank {}: {}, nothing pending", peer.rank, why);
  else
    log::warn(log::net, rank_, "rank {}: {}, {} messages pending", peer.rank, why, pending);
}

void TcpTransport::cancel_all() {
  if (!cancelled_.ok()) return;
  cancelled_ = error(Code::remote_error, "rank {} gave up communicating", rank_);
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->dialled.reset();
    peer->stream.fail(cancelled_);
  }
  busy_.clear();
  strangers_.clear();
  out_lanes_.clear();
  in_lanes_.clear();
}

}  // namespace epccl::transports
