// How a rank joins: connects to the hub, proves itself (handshake.hpp), waits for the others.
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <poll.h>
#include <cerrno>
#include <cmath>

#include "base/allowed_calls.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "runtime/bootstrap/client.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/bootstrap/process_hubs.hpp"

namespace epccl::runtime {
namespace {

constexpr double first_retry = 0.01, longest_retry = 0.2;  // seconds between attempts to connect
constexpr double refused_patience = 2;                     // of a machine that is there
constexpr double word_patience = 1;                        // for who does not wait any more

void sleep_seconds(double seconds) {
  if (seconds > 0) poll(nullptr, 0, static_cast<int>(std::ceil(seconds * 1e3)));
}

/// What else it may be.
std::string or_so(const net::Endpoint& at) {
  const std::string doubt = net::doubt_about(at);
  return doubt.empty() ? "" : "; " + doubt;
}

void watch_for_reading(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(const UniqueId& id, int rank, int ranks, double timeout,
                                                   JoinOptions options) {
  if (ranks < 1 || ranks > wire::max_ranks || rank < 0 || rank >= ranks)
    return error(Code::invalid_argument, "rank {} of {} ranks cannot be", rank, ranks);
  EPCCL_TRY(start_crypto());
  EPCCL_ASSIGN(const Rendezvous rendezvous, decode(id));
  auto client = std::make_unique<Client>(rank, ranks, timeout, std::move(options));
  Status joined = client->join(rendezvous);
  if (!joined.ok()) {
    log::warn(log::init, rank, "joining failed: {}", joined.message());
    return joined;
  }
  keep_line(*client);
  return std::unique_ptr<Bootstrap>(std::move(client));
}

Status Client::join(const Rendezvous& rendezvous) {
  const std::lock_guard lock(reading_);
  Status status = join_unless_stopped(rendezvous);
  const auto check = std::exchange(options_.check, nullptr);
  if (!status.ok() && interrupted() && !has_claimed_) say_not_coming(rendezvous);
  // Others may have heard first, and have left.
  if (!status.ok() && check != nullptr)
    if (Status why = check(true); !why.ok()) return why;
  return status;
}

Status Client::join_unless_stopped(const Rendezvous& rendezvous) {
  EPCCL_TRY(check_allowed_calls());
  const double deadline = now_seconds() + timeout_;
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  notice_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !notice_event_) return system_error(errno, "opening the control line");
  watch_for_reading(epoll_.get(), notice_event_.get());
  hub_ = rendezvous.endpoint.to_string();

  bool retry = true;
  Status status;
  while (retry) {
    EPCCL_TRY(connect(rendezvous, deadline));
    status = prove(rendezvous, deadline, retry);
    if (retry) sleep_seconds(first_retry);
  }
  EPCCL_TRY(std::move(status));
  status = wait_for_all(deadline);
  // Giving up is told as such; a connection that just closes would count as a death.
  if (!status.ok() && state_ == Line::open) hang_up(any_call);
  return status;
}

/// Before this rank said that it came it was stopped: whoever waits for it hears so, where the hub answers at once.
void Client::say_not_coming(const Rendezvous& rendezvous) {
  options_.interrupt = nullptr;
  const double deadline = now_seconds() + word_patience;
  auto fd = try_to_connect(rendezvous.endpoint, deadline);
  if (!fd.ok()) return;
  open_line(std::move(fd).value());
  challenge_.reset();
  bool retry = false;
  if (prove(rendezvous, deadline, retry).ok()) hang_up(any_call);
}

Status Client::interruption() const {
  return error(Code::remote_error, "rank {}: the communicator was aborted", rank_);
}

Result<UniqueFd> Client::try_to_connect(const net::Endpoint& to, double deadline) const {
  EPCCL_ASSIGN(UniqueFd fd, net::start_connect(to));
  const int also = options_.interrupt != nullptr ? options_.interrupt->fd() : -1;
  if (!net::wait_for(fd.get(), POLLOUT, deadline, also))
    return system_error(ETIMEDOUT, fmt::format("connecting to {}", to.to_string()));
  if (interrupted()) return interruption();
  EPCCL_TRY(net::finish_connect(fd.get(), to));
  return fd;
}

void Client::open_line(UniqueFd fd) {
  net::set_control_line_options(fd.get(), timeout_);
  line_ = GuardedFd(std::move(fd));
  watch_for_reading(epoll_.get(), line_.get());
  state_ = Line::open;
  splitter_ = {};
  const std::lock_guard lock(writing_);
  unsent_.clear();
  sent_ = 0;
}

/// Tries until somebody accepts: the hub's backlog may be full. An id is made by a hub that listens, so where nobody does its process has
/// ended, or is through with what the id was for.
Status Client::connect(const Rendezvous& rendezvous, double deadline) {
  double refused_since = 0;
  for (double pause = first_retry;; pause = std::min(2 * pause, longest_retry)) {
    auto fd = try_to_connect(rendezvous.endpoint, std::max(deadline, now_seconds() + 0.001));
    if (fd.ok()) {
      open_line(std::move(fd).value());
      return {};
    }
    if (interrupted()) return interruption();
    if (options_.check != nullptr) EPCCL_TRY(options_.check(false));
    const double now = now_seconds();
    const bool is_refused = fd.status().code() == Code::remote_error;
    refused_since = !is_refused ? 0 : refused_since == 0 ? now : refused_since;
    if (is_refused && now - refused_since >= refused_patience) {
      if (options_.nobody_there != nullptr) options_.nobody_there(rendezvous.endpoint.is_loopback());
      return error(Code::remote_error,
                   "rank {}: there is no rendezvous at {} any more: its process has ended, or all ranks that "
                   "it waited for had come ({}){}",
                   rank_, rendezvous.endpoint.to_string(), fd.status().message(), or_so(rendezvous.endpoint));
    }
    if (now + pause >= deadline)
      return error(Code::remote_error, Reason::timeout, "rank {}: no rendezvous at {} within {} s: {}", rank_,
                   rendezvous.endpoint.to_string(), timeout_, fd.status().message());
    sleep_seconds(pause);
  }
}

/// The handshake. `retry`: the hub closed before it said anything, which is what an overloaded one does.
Status Client::prove(const Rendezvous& rendezvous, double deadline, bool& retry) {
  retry = false;
  bool timed_out = false;
  Nonce mine, of_hub;
  Proof proof;
  randomize(mine);
  queue(wire::Writer(wire::Type::hello).u32(wire::protocol_version).raw(mine).take());
  Status status = pump(
      deadline, [&] { return challenge_.has_value() || refused_.has_value(); }, timed_out);
  if (refused_) return refusal();
  if (timed_out)
    return error(Code::remote_error, Reason::timeout,
                 "rank {}: the rendezvous at {} accepted and then said nothing for {} s", rank_, hub_,
                 timeout_);
  if (interrupted()) return interruption();
  if (options_.check != nullptr) EPCCL_TRY(options_.check(false));
  if (!status.ok()) {
    retry = now_seconds() < deadline;
    first_notice_.reset();
    notices_.clear();
    return error(Code::remote_error, "rank {}: the rendezvous at {} closed the connection: {}", rank_, hub_,
                 status.message());
  }
  wire::Reader body(*challenge_);
  body.raw(of_hub);
  body.raw(proof);
  if (!body.complete() || !same_proof(proof, hub_proof(rendezvous.secret, mine, of_hub)))
    return error(Code::remote_error,
                 "rank {}: who answers at {} does not hold the secret of this unique id{}", rank_, hub_,
                 or_so(rendezvous.endpoint));

  wire::Writer claims(wire::Type::join);
  claims.i32(rank_).i32(ranks_).i32(getpid()).text(this_host()).u64(options_.session).u64(this_process());
  const Proof own = rank_proof(rendezvous.secret, mine, of_hub, claims.body());
  queue(wire::Writer(wire::Type::join).raw(own).raw(claims.body()).take());
  has_claimed_ = true;
  return {};
}

Status Client::refusal() const {
  return error(Code::invalid_usage, "rank {}: refused by the rendezvous: {}", rank_, *refused_);
}

Status Client::wait_for_all(double deadline) {
  bool timed_out = false;
  Answer answer;
  const auto missing = [&] {
    answer = ask(brief_patience);
    return fmt::format("{} of {} ranks have joined; missing: {}", answer.joined, ranks_,
                       answer.missing.empty() ? "unknown" : answer.missing);
  };
  Status status = pump_aloud(
      deadline, [&] { return joined_ || refused_.has_value(); }, timed_out, missing);
  if (refused_) return refusal();
  if (!timed_out) return status;
  answer = ask(question_patience);
  // Another rank's time was up first, and its news ended the question: it says who is missing.
  if (answer.missing.empty() && first_notice_)
    return error(Code::remote_error, first_notice_->reason, "rank {}: {}", rank_, first_notice_->text);
  const std::string text =
      answer.missing.empty()
          ? fmt::format(
                "not all of {} ranks had joined after {} s; the rendezvous ({}) does not say who is missing",
                ranks_, timeout_, hub_)
          : fmt::format("{} of {} ranks had joined after {} s; missing: {}", answer.joined, ranks_, timeout_,
                        answer.missing);
  Status why{Code::remote_error, Reason::timeout, text};
  send_failure(why);
  return std::move(why).with_context(fmt::format("rank {}", rank_));
}

}  // namespace epccl::runtime
