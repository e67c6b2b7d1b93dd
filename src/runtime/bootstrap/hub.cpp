#include "runtime/bootstrap/hub.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <system_error>
#include <vector>

#include "base/caught.hpp"
#include "base/clock.hpp"
#include "base/descriptor_limit.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"
#include "base/thread.hpp"
#include "runtime/bootstrap/hub_address.hpp"

namespace epccl::runtime {
namespace {

constexpr double stranger_patience = 15;  // seconds in which a connection has to prove itself
constexpr double closing_patience = 5;    // seconds in which a refused one may read why
constexpr double goodbye_patience = 1;    // seconds that the end of the process may take
constexpr double others_patience = 10;    // seconds that it waits for others to end their last call
constexpr double accept_pause = 0.2;  // seconds until it is tried again where no connection can be accepted
constexpr double crowd_patience = 5;  // seconds for which that is tried before the ranks are told
constexpr int max_strangers = 1024;
constexpr int last_rounds = 100;

void watch(int epoll, int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll, operation, fd, &event);
}

}  // namespace

Result<std::shared_ptr<Hub>> Hub::start() {
  auto hub = std::make_shared<Hub>(Private());
  EPCCL_ASSIGN(net::Endpoint at, chosen_endpoint());
  Status opened = hub->open(at);
  if (!opened.ok() && at.port != 0 && net::bound_by_this_process(at)) {
    log::info(log::init, -1, "EPCCL_COMM_ID: this process has port {} already, for an earlier id", at.port);
    at.port = 0;
    opened = hub->open(at);
  }
  EPCCL_TRY(std::move(opened));
  hub->session(0);
  EPCCL_TRY(hub->start_thread());
  log::info(log::init, -1, "rendezvous opened at {}", hub->rendezvous_.endpoint.to_string());
  return hub;
}

Result<std::shared_ptr<Hub>> Hub::stand() {
  auto hub = std::make_shared<Hub>(Private());
  hub->standing_ = true;
  EPCCL_ASSIGN(const net::Endpoint at, address_of_interfaces());
  EPCCL_TRY(hub->open(at));
  return hub;
}

Status Hub::serve() {
  const std::lock_guard lock(starting_);
  return thread_.joinable() ? Status{} : start_thread();
}

Status Hub::start_thread() {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  stop_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !stop_event_) return system_error(errno, "opening the rendezvous");
  watch(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), EPOLLIN);
  watch(epoll_.get(), EPOLL_CTL_ADD, stop_event_.get(), EPOLLIN);
  try {
    thread_ = epccl::start_thread([this] { run(); });
  } catch (const std::system_error& none) {
    return error(Code::system_error, "no thread for the rendezvous: {}", none.what());
  }
  return {};
}

Status Hub::open(const net::Endpoint& at) {
  EPCCL_ASSIGN(timeout_, settings::get_seconds("EPCCL_TIMEOUT"));
  rendezvous_.endpoint = at;
  randomize(rendezvous_.secret);
  auto listener = net::listen_at(rendezvous_.endpoint);
  if (!listener.ok()) return std::move(listener).take_status().with_context("opening the rendezvous");
  listener_ = GuardedFd(std::move(listener).value());
  owner_ = getpid();
  return {};
}

Hub::Session& Hub::session(uint64_t number) {
  Session& found = sessions_[number];
  if (found.roster == nullptr)
    found.roster = std::make_unique<Roster>(
        Member{-1, owner_, this_host(), this_process()},
        [this, &found](int rank, const Roster::Frame& frame) { send_to_rank(found, rank, frame); });
  return found;
}

void Hub::set_aside(uint64_t number) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end() || !found->second.roster->given_up()) return;
  auto moved = sessions_.extract(found);
  moved.key() = set_aside_--;
  for (auto& [fd, connection] : connections_)
    if (connection.phase == HubConnection::Phase::member && connection.session == number)
      connection.session = moved.key();
  sessions_.insert(std::move(moved));
}

void Hub::retire() {
  const std::lock_guard lock(starting_);
  retired_.store(true, std::memory_order_release);
  if (stop_event_) eventfd_write(stop_event_.get(), 1);
}

void Hub::stop(const std::string& why) {
  const std::lock_guard lock(starting_);
  if (owner_ != getpid()) {  // a forked child has the object, not the thread
    if (thread_.joinable()) thread_.detach();
    return;
  }
  if (!stop_.load(std::memory_order_acquire)) why_ = why;
  stop_.store(true, std::memory_order_release);
  if (stop_event_) eventfd_write(stop_event_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void Hub::let_the_others_end() {
  stop_at_.store(now_seconds() + std::min(others_patience, timeout_), std::memory_order_release);
  const std::lock_guard lock(starting_);
  if (stop_event_) eventfd_write(stop_event_.get(), 1);
}

void Hub::stop_after_the_others() {
  if (owner_ == getpid()) {
    const std::lock_guard lock(starting_);
    if (thread_.joinable()) thread_.join();
  }
  stop();
}

bool Hub::others_are_left() const {
  return std::ranges::any_of(sessions_,
                             [](const auto& each) { return each.second.roster->others_are_left(); });
}

bool Hub::done() {
  if (stop_.load(std::memory_order_acquire)) return true;
  if (const double at = stop_at_.load(std::memory_order_acquire);
      at > 0 && (now_seconds() >= at || !others_are_left()))
    return true;
  if (!standing_) return connections_.empty() && (session(0).roster->finished() || is_forgotten());
  std::erase_if(sessions_, [](const auto& each) { return each.second.roster->deserted(); });
  return retired_.load(std::memory_order_acquire) && sessions_.empty() && connections_.empty();
}

// Who comes too late to an id that was given up still learns why, for as long as others would have waited.
bool Hub::is_forgotten() {
  const Roster& roster = *session(0).roster;
  if (!roster.given_up() || !roster.deserted()) return false;
  if (roster.all_have_come()) return true;
  if (forgotten_at_ == 0) forgotten_at_ = now_seconds() + timeout_;
  return now_seconds() >= forgotten_at_;
}

// An exception (memory that is not to be had) ends the rendezvous, not the process: ranks hear of a lost line.
void Hub::run() {
  pthread_setname_np(pthread_self(), "epccl-hub");
  const Status served = caught([this] {
    serve_all();
    return Status();
  });
  if (!served.ok()) log::warn(log::init, -1, "rendezvous: it has to end: {}", served.message());
  connections_.clear();
  listener_.reset();
  sessions_.clear();
  finished_.store(true, std::memory_order_release);
}

void Hub::serve_all() {
  while (!done()) {
    serve_round(milliseconds_to_next_deadline(now_seconds()));
    drop_overdue(now_seconds());
  }
  // What ranks have said by now counts: this thread may have been off its core.
  for (int round = 0; round < last_rounds && serve_round(0) > 0; ++round) {
  }
  say_goodbye();
}

int Hub::serve_round(int patience_milliseconds) {
  std::array<epoll_event, 64> events;
  const int ready =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), patience_milliseconds);
  for (int i = 0; i < ready; ++i) {
    const auto& event = events[static_cast<size_t>(i)];
    if (event.data.fd == stop_event_.get()) {
      eventfd_t drained = 0;
      eventfd_read(stop_event_.get(), &drained);
    } else if (event.data.fd == listener_.get()) {
      accept_all();
    } else {
      handle(event.data.fd, event.events);
    }
  }
  return ready;
}

void Hub::handle(int fd, uint32_t events) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;  // dropped while handling another one of this round
  HubConnection& connection = found->second;
  const bool open = (events & ~uint32_t{EPOLLOUT}) == 0 || connection.receive();
  // What came before the end counts: a goodbye, most of all.
  if (!handle_frames(connection)) return;
  if (!open) {
    drop(fd, connection.end_reason());
    return;
  }
  flush_or_watch(connection);
}

void Hub::accept_all() {
  for (;;) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EMFILE && raise_descriptor_limit()) continue;
      return rest_from_accepting(errno);
    }
    crowded_since_ = 0;
    make_room_above(fd.get());
    std::string peer = net::peer_name(fd.get());
    if (strangers_ >= max_strangers) {
      log::warn(log::init, -1, "rendezvous: {} connections prove nothing; {} is turned away", strangers_,
                peer);
      continue;
    }
    net::set_control_line_options(fd.get(), timeout_);
    watch(epoll_.get(), EPOLL_CTL_ADD, fd.get(), EPOLLIN);
    const int key = fd.get();
    connections_.try_emplace(key, std::move(fd), std::move(peer), now_seconds() + stranger_patience);
    ++strangers_;
  }
}

// Out of descriptors, most likely. The listener would stay readable, so it rests a while. Who cannot be accepted hears why when
// those who have come have given up, and left their descriptors.
void Hub::rest_from_accepting(int reason) {
  const double now = now_seconds();
  watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), 0);
  accept_again_at_ = now + accept_pause;
  const std::string why = descriptor_error(reason, "accepting a connection", "that").message();
  if (crowded_since_ == 0) {
    crowded_since_ = now;
    log::warn(log::init, -1, "rendezvous: {}", why);
  }
  if (now - crowded_since_ < std::min(crowd_patience, timeout_ / 4)) return;
  for (const auto& [number, each] : sessions_) each.roster->give_up(why);
}

/// False when the connection was dropped.
bool Hub::handle_frames(HubConnection& connection) {
  for (;;) {
    auto next = connection.next();
    Status status;
    if (!next.ok()) {
      status = std::move(next).take_status();
    } else if (!next->has_value()) {
      return true;
    } else if (connection.phase == HubConnection::Phase::member) {
      wire::Reader body((*next)->body);
      status = session(connection.session).roster->receive(connection.rank, (*next)->type, body);
    } else if (connection.phase != HubConnection::Phase::closing) {
      status = handle_stranger(connection, **next);
    }
    if (!status.ok()) {
      drop(connection.fd(), std::move(status));
      return false;
    }
    if (connection.phase == HubConnection::Phase::member &&
        session(connection.session).roster->has_left(connection.rank)) {
      flush_others_before(connection);
      drop(connection.fd(), {Code::remote_error, "it left"});
      return false;
    }
  }
}

Status Hub::handle_stranger(HubConnection& connection, const wire::Frame& frame) {
  if (connection.phase == HubConnection::Phase::hello) return challenge(connection, frame);
  return admit(connection, frame);
}

Status Hub::challenge(HubConnection& connection, const wire::Frame& frame) {
  wire::Reader body(frame.body);
  const uint32_t version = body.u32();
  body.raw(connection.rank_nonce);
  if (frame.type != wire::Type::hello || !body.complete())
    return error(Code::remote_error, "it does not speak the rendezvous protocol");
  if (version != wire::protocol_version) {
    --strangers_;
    const std::string why = fmt::format(
        "it speaks version {} of the library's protocol, the process of the unique id version {}: all ranks "
        "need the same EPCCL",
        version, wire::protocol_version);
    log::warn(log::init, -1, "rendezvous: refused a connection from {}: {}", connection.peer, why);
    refuse(connection, why);
    return {};
  }
  randomize(connection.hub_nonce);
  connection.phase = HubConnection::Phase::challenged;
  const Proof proof = hub_proof(rendezvous_.secret, connection.rank_nonce, connection.hub_nonce);
  connection.enqueue(std::make_shared<const wire::Bytes>(
      wire::Writer(wire::Type::challenge).raw(connection.hub_nonce).raw(proof).take()));
  return {};
}

Status Hub::admit(HubConnection& connection, const wire::Frame& frame) {
  wire::Reader body(frame.body);
  Proof proof;
  body.raw(proof);
  const std::span<const std::byte> claims =
      std::span(frame.body).subspan(std::min(proof.size(), frame.body.size()));
  Member member;
  member.rank = body.i32();
  const int ranks = body.i32();
  member.pid = body.i32();
  member.host = body.text();
  const uint64_t number = body.u64();
  member.process = body.u64();
  if (frame.type != wire::Type::join || !body.complete())
    return error(Code::remote_error, "it does not speak the rendezvous protocol");
  if (!same_proof(proof, rank_proof(rendezvous_.secret, connection.rank_nonce, connection.hub_nonce, claims)))
    return error(Code::remote_error, "it does not hold the id's secret");

  if (!standing_ && number != 0)
    return error(Code::remote_error, "it asks for session {} of a rendezvous that has one", number);

  --strangers_;
  if (standing_) set_aside(number);
  Session& of_number = session(number);
  // Registered first: completing the group already sends to the rank.
  const auto [entry, fresh] = of_number.fd_of_rank.try_emplace(member.rank, connection.fd());
  const Status admitted = of_number.roster->admit(member, ranks);
  if (admitted.ok()) {
    connection.phase = HubConnection::Phase::member;
    connection.session = number;
    connection.rank = member.rank;
    return {};
  }
  if (fresh) of_number.fd_of_rank.erase(entry);
  log::warn(log::init, -1, "rendezvous: refused {} at {}: {}", describe(member), connection.peer,
            admitted.message());
  refuse(connection, admitted.message());
  return {};
}

void Hub::refuse(HubConnection& connection, const std::string& why) {
  connection.phase = HubConnection::Phase::closing;
  connection.deadline = now_seconds() + closing_patience;
  connection.enqueue(std::make_shared<const wire::Bytes>(wire::Writer(wire::Type::refused).text(why).take()));
}

void Hub::send_to_rank(const Session& session, int rank, const Roster::Frame& frame) {
  const auto found = session.fd_of_rank.find(rank);
  if (found == session.fd_of_rank.end()) return;
  HubConnection& connection = connections_.at(found->second);
  connection.enqueue(frame);
  // Written when the socket says so: an error found here would change the roster in the middle of its own
  // work.
  if (!connection.watched_for_writing)
    watch(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), EPOLLIN | EPOLLOUT);
  connection.watched_for_writing = true;
}

// The rank of this process may end with it as soon as it knows; what is for the others goes out before. Errors show again when
// it is their turn.
void Hub::flush_others_before(const HubConnection& connection) {
  if (connection.phase != HubConnection::Phase::member ||
      !session(connection.session).roster->is_of_hub(connection.rank))
    return;
  for (auto& [fd, other] : connections_)
    if (&other != &connection && other.has_unsent()) static_cast<void>(other.flush());
}

void Hub::flush_or_watch(HubConnection& connection) {
  if (connection.has_unsent()) flush_others_before(connection);
  if (!connection.flush()) {
    const Status why = connection.end_reason();
    connection.receive();  // its last words may have come with its end
    if (handle_frames(connection)) drop(connection.fd(), why);
    return;
  }
  if (connection.has_unsent() == connection.watched_for_writing) return;
  connection.watched_for_writing = connection.has_unsent();
  watch(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), connection.has_unsent() ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void Hub::drop(int fd, Status why) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  const HubConnection& connection = found->second;
  const auto phase = connection.phase;
  const int rank = connection.rank;
  const uint64_t number = connection.session;
  if (phase == HubConnection::Phase::hello || phase == HubConnection::Phase::challenged) {
    --strangers_;
    log::warn(log::init, -1, "rendezvous: refused a connection from {}: {}", connection.peer, why.message());
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (phase == HubConnection::Phase::member) session(number).fd_of_rank.erase(rank);
  connections_.erase(found);
  if (phase == HubConnection::Phase::member) session(number).roster->disconnected(rank, why);
}

void Hub::drop_overdue(double now) {
  std::vector<int> overdue;
  for (const auto& [fd, connection] : connections_) {
    const bool sent = connection.phase == HubConnection::Phase::closing && !connection.has_unsent();
    if (connection.phase != HubConnection::Phase::member && (now >= connection.deadline || sent))
      overdue.push_back(fd);
  }
  for (const int fd : overdue)
    drop(fd, error(Code::remote_error, "it proved nothing within {} s", stranger_patience));
  if (accept_again_at_ > 0 && now >= accept_again_at_) {
    accept_again_at_ = 0;
    watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), EPOLLIN);
  }
}

int Hub::milliseconds_to_next_deadline(double now) const {
  double next = accept_again_at_ > 0 ? accept_again_at_ : INFINITY;
  if (const double at = stop_at_.load(std::memory_order_acquire); at > 0) next = std::min(next, at);
  if (forgotten_at_ > 0 && connections_.empty()) next = std::min(next, forgotten_at_);
  for (const auto& [fd, connection] : connections_) {
    if (connection.phase != HubConnection::Phase::member) next = std::min(next, connection.deadline);
  }
  if (!std::isfinite(next)) return -1;
  return next <= now ? 0 : static_cast<int>(std::ceil((next - now) * 1e3));
}

/// The process ends: what the ranks must know is put on the wire, within reason.
void Hub::say_goodbye() {
  for (auto& [number, each] : sessions_)
    if (!each.roster->finished()) each.roster->close(stop_.load(std::memory_order_acquire) ? why_ : "");
  const double deadline = now_seconds() + goodbye_patience;
  for (auto& [fd, connection] : connections_) {
    while (connection.flush() && connection.has_unsent()) {
      if (!net::wait_for(fd, POLLOUT, deadline)) break;
    }
  }
}

}  // namespace epccl::runtime
