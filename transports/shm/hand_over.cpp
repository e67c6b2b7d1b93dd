#include "transports/shm/hand_over.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "base/clock.hpp"
#include "base/descriptor_limit.hpp"
#include "base/thread.hpp"
#include "base/uninterrupted.hpp"
#include "transports/shm/node_socket.hpp"

namespace epccl::transports {
namespace {

constexpr const char* suffix = "-memory";
constexpr double patience_with_askers = 1.0;  // that connect and say nothing
constexpr size_t most_askers = 2 * node_max_ranks;
constexpr int attempts = 5;
constexpr int step_ms = 10;

struct Request {
  std::array<uint8_t, 16> secret{};
  uint64_t inode = 0;
  int32_t fd = -1;
};

struct Answer {
  int32_t cause = 0;  // errno; 0: a descriptor goes with it
};

/// What goes with a message: one descriptor.
union Rights {
  cmsghdr header;
  char room[CMSG_SPACE(sizeof(int))];
};

UniqueFd open_seqpacket() {
  return open_within_limit([] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

/// Who is at the other end, as this process's namespaces have it.
ucred at_other_end(const UniqueFd& socket) {
  ucred peer{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  socklen_t length = sizeof peer;
  getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  return peer;
}

// A peer that is gone needs none.
void answer(int peer, Answer what) {
  static_cast<void>(
      uninterrupted([&] { return send(peer, &what, sizeof what, MSG_NOSIGNAL | MSG_DONTWAIT); }));
}

void answer_with(int peer, int fd) {
  Answer what;
  iovec text{&what, sizeof what};
  Rights rights{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = rights.room;
  message.msg_controllen = sizeof rights.room;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  const ssize_t sent = uninterrupted([&] { return sendmsg(peer, &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
  if (sent < 0) answer(peer, {errno});  // too many are under way, say
}

/// One asks one owner for one window.
class Asking {
 public:
  Asking(const SegmentHandle& node, int local, const device::WindowRef& window, const Patience& patience)
      : node_(node), local_(local), window_(window), patience_(patience) {}

  Result<UniqueFd> ask() const {
    for (int attempt = 0; attempt < attempts; ++attempt) {
      EPCCL_ASSIGN(auto handed, ask_once());
      if (!handed) continue;
      EPCCL_TRY(device::check_window(*handed, window_));
      return std::move(*handed);
    }
    return error(Code::remote_error, "{} does not hand it over: it has hung up {} times", owner(), attempts);
  }

 private:
  std::string owner() const { return fmt::format("local rank {}, process {},", local_, window_.pid); }
  /// Nothing: the owner has hung up.
  Result<std::optional<UniqueFd>> ask_once() const;
  Status connect_to_owner(const UniqueFd& socket) const;
  Result<std::optional<UniqueFd>> hear_answer(const UniqueFd& socket) const;
  Status pause(pollfd until) const;

  /// What the call returns, where it neither is interrupted nor would have to wait for what `until` says.
  template <typename Call>
  Result<ssize_t> patiently(pollfd until, Call call) const {
    for (;;) {
      const ssize_t result = uninterrupted(call);
      if (result >= 0 || errno != EAGAIN) return result;
      EPCCL_TRY(pause(until));
    }
  }

  const SegmentHandle& node_;
  const int local_;
  const device::WindowRef& window_;
  const Patience& patience_;
  const double until_ = now_seconds() + patience_.seconds;
};

// A signal makes a pause shorter: no harm.
Status Asking::pause(pollfd until) const {
  if (patience_.check) EPCCL_TRY(patience_.check());
  if (now_seconds() >= until_)
    return error(Code::remote_error, Reason::timeout, "{} has not answered within {:g} seconds", owner(),
                 patience_.seconds);
  poll(&until, 1, step_ms);
  return {};
}

// Of a queue that is full nothing tells when it no longer is.
Status Asking::connect_to_owner(const UniqueFd& socket) const {
  const NodeSocket name(node_.token, local_, suffix);
  EPCCL_ASSIGN(const ssize_t connected, patiently({-1, 0, 0}, [&] {
                 return static_cast<ssize_t>(connect(socket.get(), name.get(), name.length));
               }));
  if (connected == 0) return {};
  const int cause = errno;
  if (cause != ECONNREFUSED) return system_error(cause, "connecting to " + owner());
  return error(Code::remote_error, "{} is gone or in another network namespace: nobody listens for it",
               owner());
}

Result<std::optional<UniqueFd>> Asking::ask_once() const {
  const UniqueFd socket = open_seqpacket();
  if (!socket) return descriptor_error(errno, "a socket to be handed memory");
  EPCCL_TRY(connect_to_owner(socket));
  const ucred peer = at_other_end(socket);
  if (peer.pid != window_.pid || peer.uid != geteuid())
    return error(Code::system_error, "process {} of user {} listens in the place of process {} of user {}",
                 peer.pid, peer.uid, window_.pid, geteuid());
  const Request request{node_.secret, window_.inode, window_.fd};
  EPCCL_ASSIGN(const ssize_t sent, patiently({socket.get(), POLLOUT, 0}, [&] {
                 return send(socket.get(), &request, sizeof request, MSG_NOSIGNAL);
               }));
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return std::optional<UniqueFd>();
  if (sent != sizeof request) return system_error(errno, "asking " + owner() + " for it");
  return hear_answer(socket);
}

Result<std::optional<UniqueFd>> Asking::hear_answer(const UniqueFd& socket) const {
  Answer answer;
  iovec text{&answer, sizeof answer};
  Rights rights{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = rights.room;
  message.msg_controllen = sizeof rights.room;
  EPCCL_ASSIGN(const ssize_t length, patiently({socket.get(), POLLIN, 0}, [&] {
                 return recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
               }));
  if (length == 0 || (length < 0 && errno == ECONNRESET)) return std::optional<UniqueFd>();
  if (length < 0) return system_error(errno, "hearing " + owner() + " answer");
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (length == sizeof answer && header != nullptr && header->cmsg_level == SOL_SOCKET &&
      header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return std::optional(UniqueFd(fd));
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0)
    return descriptor_error(EMFILE, "taking the descriptor that was handed over");
  return error(Code::remote_error, "{} does not hand it over: {}", owner(),
               answer.cause == ENOENT ? "freed while in use?" : text_of_error(answer.cause));
}

}  // namespace

Result<std::unique_ptr<HandOver>> HandOver::start(const NodeSegment& segment, int local) {
  UniqueFd own;
  if (segment.descriptor() >= 0) {
    own = open_within_limit([&] { return fcntl(segment.descriptor(), F_DUPFD_CLOEXEC, 3); });
    if (!own) return descriptor_error(errno, "duplicating the node segment's descriptor");
  }
  std::unique_ptr<HandOver> made(new HandOver(segment.handle(), std::move(own)));  // private constructor
  EPCCL_TRY(made->listen(local));
  try {
    made->thread_ = start_thread([of = made.get()] { of->run(); });
  } catch (const std::system_error& none) {
    return error(Code::system_error, "the system gives no thread to hand over memory: {}", none.what());
  }
  return made;
}

HandOver::~HandOver() {
  if (!thread_.joinable()) return;
  eventfd_write(end_.get(), 1);
  thread_.join();
}

Status HandOver::listen(int local) {
  UniqueFd end = open_within_limit([] { return eventfd(0, EFD_CLOEXEC); });
  if (!end) return descriptor_error(errno, "eventfd");
  end_ = GuardedFd(std::move(end));
  UniqueFd listener = open_seqpacket();
  if (!listener) return descriptor_error(errno, "a socket to hand over memory");
  listener_ = GuardedFd(std::move(listener));
  const NodeSocket name(node_.token, local, suffix);
  if (bind(listener_.get(), name.get(), name.length) != 0 || ::listen(listener_.get(), node_max_ranks) != 0)
    return system_error(errno, "listening at a socket to hand over memory");
  return {};
}

void HandOver::run() const {
  std::vector<Asker> askers;  // who came first is first
  std::vector<pollfd> waits;
  for (;;) {
    waits = {{end_.get(), POLLIN, 0}, {askers.size() < most_askers ? listener_.get() : -1, POLLIN, 0}};
    for (const Asker& asker : askers) waits.push_back({asker.socket.get(), POLLIN, 0});
    const double left = askers.empty() ? 0 : std::max(askers.front().until - now_seconds(), 0.0);
    poll(waits.data(), waits.size(), askers.empty() ? -1 : static_cast<int>(left * 1e3) + 1);
    if (waits[0].revents != 0) return;
    for (size_t at = 0; at < askers.size(); ++at) {
      askers[at].has_spoken = waits[at + 2].revents != 0;
      if (askers[at].has_spoken) serve(askers[at].socket.get());
    }
    const double now = now_seconds();
    std::erase_if(askers, [now](const Asker& asker) { return asker.has_spoken || asker.until <= now; });
    if (waits[1].revents != 0) admit(askers);
  }
}

void HandOver::admit(std::vector<Asker>& askers) const {
  while (askers.size() < most_askers) {
    UniqueFd peer = open_within_limit(
        [this] { return accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    if (peer) {
      if (at_other_end(peer).uid == geteuid())
        askers.push_back({GuardedFd(std::move(peer)), now_seconds() + patience_with_askers});
      continue;
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    if (errno == EAGAIN) return;
    pollfd end{end_.get(), POLLIN, 0};
    poll(&end, 1, step_ms);  // no descriptors left: not again and again at once
    return;
  }
}

void HandOver::serve(int peer) const {
  Request request;
  if (uninterrupted([&] { return recv(peer, &request, sizeof request, MSG_DONTWAIT); }) != sizeof request)
    return;
  if (sodium_memcmp(request.secret.data(), node_.secret.data(), request.secret.size()) != 0) return;
  if (segment_ && request.inode == node_.memory.inode && request.fd == node_.memory.fd)
    return answer_with(peer, segment_.get());
  if (!device::is_window_during(request.fd, request.inode, [&] { answer_with(peer, request.fd); }))
    answer(peer, {ENOENT});
}

Result<UniqueFd> ask_for_window(const SegmentHandle& node, int local, const device::WindowRef& window,
                                const Patience& patience) {
  return Asking(node, local, window, patience).ask();
}

}  // namespace epccl::transports
