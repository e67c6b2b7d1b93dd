#include "transports/verbs/wireup.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/log.hpp"

namespace epccl::transports::verbs {
namespace {

// A machine that is cut off is noticed after about 3/4 of this.
constexpr double cut_off_seconds = 20;

// Tags: ranks, then the listener, then strangers by number.
constexpr uint64_t listener_tag = uint64_t{1} << 40;
constexpr uint64_t first_stranger_tag = listener_tag + 1;

bool under_way(auto state) {
  using State = decltype(state);
  return state == State::dialling || state == State::greeted || state == State::declined ||
         state == State::answered;
}

const char* purpose(Notice::Kind kind) {
  switch (kind) {
    case Notice::Kind::ready:
      return "telling it to begin";
    case Notice::Kind::rail_lost:
      return "telling it of a lost rail";
    case Notice::Kind::rail_offer:
      return "offering it a new queue pair for a lost rail";
    case Notice::Kind::rail_ready:
      return "telling it that a lost rail is back";
  }
  return "telling it something";
}

/// What cannot be written to a peer's line: its end, or the way to it.
Status lost(const char* writing) {
  return {Code::remote_error, system_error(errno, writing).message()};
}

}  // namespace

Status Wireup::open(const net::Endpoint& at, int epoll) {
  epoll_ = epoll;
  EPCCL_ASSIGN(listener_, address_.listen(at));
  return watch(listener_.get(), listener_tag, false);
}

Status Wireup::watch(int fd, uint64_t tag, bool also_writable) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET | (also_writable ? EPOLLOUT : 0U);
  // Who could not be let in for want of a descriptor is told of again.
  if (tag == listener_tag) event.events = EPOLLIN;
  event.data.u64 = tag;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return system_error(errno, "watching a socket");
}

template <typename T>
Wireup::Read Wireup::read(int fd, Inbox& inbox, T& into) {
  static_assert(sizeof(T) <= sizeof inbox.data);
  while (inbox.filled < sizeof(T)) {
    const ssize_t got = ::recv(fd, inbox.data.data() + inbox.filled, sizeof(T) - inbox.filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Read::partly;
    if (got < 0) inbox.error = errno;
    if (got <= 0) return Read::closed;
    inbox.filled += static_cast<size_t>(got);
  }
  std::memcpy(&into, inbox.data.data(), sizeof(T));
  inbox.filled = 0;
  return Read::whole;
}

/// The few bytes that are said here always fit a socket's buffer.
template <typename T>
bool Wireup::write(int fd, const T& what) {
  return ::send(fd, &what, sizeof what, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof what);
}

void Wireup::set(Line& line, State state) {
  under_way_ += (under_way(state) ? 1 : 0) - (under_way(line.state) ? 1 : 0);
  line.state = state;
}

void Wireup::handle(uint64_t tag) {
  if (tag == listener_tag) return accept();
  if (tag >= first_stranger_tag)
    return strangers_.read(tag - first_stranger_tag, rank_,
                           [this](Stranger& stranger) { return admit(stranger); });
  on_line(static_cast<int>(tag));
}

// ---- dialling -----------------------------------------------------------------------------------------------------------

Status Wireup::dial(int peer) {
  Line& line = lines_[peer];
  if (line.state != State::unconnected) return {};
  auto blob = lookup_(peer);
  if (!blob.ok()) return std::move(blob).take_status().with_context("looking up its address");
  EPCCL_ASSIGN(line.address, Address::decode(*blob));
  EPCCL_ASSIGN(line.socket, net::start_connect(line.address.endpoint));
  set(line, State::dialling);
  return watch(line.socket.get(), static_cast<uint64_t>(peer), true);
}

void Wireup::on_line(int peer) {
  const auto known = lines_.find(peer);
  if (known == lines_.end() || !known->second.socket) return;
  Line& line = known->second;
  switch (line.state) {
    case State::dialling:
      return on_dialled(peer, line);
    case State::greeted:
      return on_answer(peer, line);
    case State::declined:
      return on_declined(peer, line);
    case State::answered:
    case State::open:
      return on_notice(peer, line);
    default:
      return;
  }
}

void Wireup::on_dialled(int peer, Line& line) {
  if (Status status = net::finish_connect(line.socket.get(), line.address.endpoint); !status.ok())
    return fail(peer, std::move(status));
  net::set_control_line_options(line.socket.get(), cut_off_seconds);
  auto ends = connector_.ends(peer);
  if (!ends.ok()) return fail(peer, std::move(ends).take_status());
  Hello hello;
  hello.cookie = line.address.cookie;
  hello.from = rank_;
  hello.to = peer;
  hello.ends = *ends;
  if (!write(line.socket.get(), hello)) return fail(peer, lost("greeting it"));
  set(line, State::greeted);
  on_answer(peer, line);
}

/// Why nothing more comes: what the kernel says of the way there; else `text`.
Status Wireup::ended(const Line& line, const char* text) {
  const int cause = line.inbox.error;
  if (cause == 0 || cause == ECONNRESET) return {Code::remote_error, text};
  return error(Code::remote_error, "connection lost: {} (errno {})", text_of_error(cause), cause);
}

void Wireup::on_answer(int peer, Line& line) {
  Answer answer;
  switch (read(line.socket.get(), line.inbox, answer)) {
    case Read::partly:
      return;
    case Read::closed:
      return fail(peer, ended(line, "it closed the connection before it had accepted it"));
    case Read::whole:
      break;
  }
  if (answer.verdict == Verdict::declined) {
    set(line, State::declined);
    return on_declined(peer, line);
  }
  if (answer.verdict != Verdict::welcome) {
    answer.reason.back() = 0;
    return fail(peer, error(Code::remote_error, "it refused the connection: {}", answer.reason.data()));
  }
  if (Status status = connector_.connect(peer, answer.ends); !status.ok())
    return fail(peer, std::move(status));
  if (!write(line.socket.get(), Notice{})) return fail(peer, lost(purpose(Notice::Kind::ready)));
  set(line, State::open);
  line.declined.reset();
  connector_.opened(peer);
  on_notice(peer, line);
}

/// Nothing comes over this connection any more; when it ends before the peer's own has come, there will be none.
void Wireup::on_declined(int peer, Line& line) {
  char nothing = 0;
  if (::recv(line.socket.get(), &nothing, 1, MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR))
    fail(peer, error(Code::remote_error, "its process ended before it had made the connection"));
}

void Wireup::on_notice(int peer, Line& line) {
  while (line.socket) {
    Notice notice;
    switch (read(line.socket.get(), line.inbox, notice)) {
      case Read::partly:
        return;
      case Read::closed:
        return fail(peer,
                    ended(line, line.state == State::open ? "its process has ended or closed the connection"
                                                          : "it closed the connection before it was ready"));
      case Read::whole:
        break;
    }
    if (notice.kind == Notice::Kind::ready && line.state == State::answered) {
      set(line, State::open);
      connector_.opened(peer);
    } else {
      connector_.noticed(peer, notice);
    }
  }
}

void Wireup::notify(int peer, const Notice& notice) {
  const auto known = lines_.find(peer);
  if (known == lines_.end() || !known->second.socket) return;
  if (!write(known->second.socket.get(), notice)) fail(peer, lost(purpose(notice.kind)));
}

void Wireup::fail(int peer, Status why) {
  close(peer);
  connector_.failed(peer, std::move(why));
}

void Wireup::close(int peer) {
  Line& line = lines_[peer];
  line.socket.reset();
  line.declined.reset();
  set(line, State::closed);
}

// ---- being dialled ------------------------------------------------------------------------------------------------------

void Wireup::accept() {
  const auto prepare = [this](int fd, uint64_t number) {
    net::set_control_line_options(fd, cut_off_seconds);
    return watch(fd, first_stranger_tag + number, false).ok();
  };
  strangers_.accept(listener_.get(), rank_, prepare, [this](Stranger& stranger) { return admit(stranger); });
}

/// False when it is not who it should be.
bool Wireup::admit(Stranger& stranger) {
  const Hello hello = stranger.hello;
  if (!is_meant_for(hello, address_.cookie, rank_, ranks_)) return false;
  Line& line = lines_[hello.from];
  const bool has_own = line.state == State::dialling || line.state == State::greeted;
  if (line.state == State::closed || line.state == State::answered || line.state == State::open ||
      (has_own && rank_ < hello.from)) {
    Answer answer;
    answer.verdict = has_own ? Verdict::declined : Verdict::refused;
    std::strncpy(answer.reason.data(), "there is or was a connection already", answer.reason.size() - 1);
    if (write(stranger.socket.get(), answer) && has_own) line.declined = std::move(stranger.socket);
    return true;
  }
  // Its tag was the stranger's.
  epoll_ctl(epoll_, EPOLL_CTL_DEL, stranger.socket.get(), nullptr);
  line.socket = std::move(stranger.socket);
  line.inbox.filled = 0;
  answer(hello.from, line, hello);
  return true;
}

void Wireup::answer(int peer, Line& line, const Hello& hello) {
  set(line, State::answered);
  Answer answer;
  Status status = watch(line.socket.get(), static_cast<uint64_t>(peer), false);
  if (status.ok()) {
    auto ends = connector_.ends(peer);
    status = ends.ok() ? connector_.connect(peer, hello.ends) : std::move(ends).take_status();
    if (ends.ok()) answer.ends = *ends;
  }
  answer.verdict = status.ok() ? Verdict::welcome : Verdict::refused;
  std::strncpy(answer.reason.data(), status.message().c_str(), answer.reason.size() - 1);
  if (!write(line.socket.get(), answer) && status.ok()) status = lost("answering it");
  if (!status.ok()) return fail(peer, std::move(status));
  on_notice(peer, line);
}

}  // namespace epccl::transports::verbs
