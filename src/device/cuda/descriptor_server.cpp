#include "device/cuda/descriptor_server.hpp"

#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "base/caught.hpp"
#include "base/fork_guard.hpp"
#include "base/per_process.hpp"
#include "base/thread.hpp"
#include "base/uninterrupted.hpp"
#include "device/cuda/identity.hpp"

namespace epccl::device::cuda {
namespace {

constexpr timeval patience{10, 0};
constexpr timeval patience_with_clients{1, 0};
constexpr int backlog = 128;
constexpr int attempts = 5;

struct Request {
  std::array<std::byte, 16> secret;
  uint64_t number;
};

/// A name in the abstract namespace: it ends with the last descriptor.
sockaddr_un address_of(const std::array<std::byte, 16>& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string_view prefix = "epccl-cuda-";
  char* text = address.sun_path + 1;
  std::memcpy(text, prefix.data(), prefix.size());
  text += prefix.size();
  for (const std::byte byte : name) text = fmt::format_to(text, "{:02x}", std::to_integer<unsigned>(byte));
  length = static_cast<socklen_t>(text - reinterpret_cast<char*>(&address));
  return address;
}

/// One byte, with the descriptor unless there is none (fd < 0).
void reply(int client, int fd) {
  char answer = fd < 0 ? 0 : 1;
  iovec data{&answer, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  // A client that is gone needs nothing.
  uninterrupted([&] { return sendmsg(client, &message, MSG_NOSIGNAL); });
}

bool is_same_user(int client) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

class Server {
 public:
  Result<DescriptorTicket> offer(UniqueFd descriptor) {
    const std::lock_guard lock(mutex_);
    if (!listener_) EPCCL_TRY(start());
    DescriptorTicket ticket{name_, secret_, next_++};
    offers_.emplace(ticket.number, GuardedFd(std::move(descriptor)));
    return ticket;
  }

  void withdraw(uint64_t number) {
    const std::lock_guard lock(mutex_);
    offers_.erase(number);
  }

 private:
  Status start() {
    fill_random(name_);
    fill_random(secret_);
    UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!listener) return system_error(errno, "socket for handing out descriptors");
    socklen_t length = 0;
    const sockaddr_un address = address_of(name_, length);
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
      return system_error(errno, "bind of the socket for handing out descriptors");
    if (listen(listener.get(), backlog) != 0)
      return system_error(errno, "listen for those who ask for descriptors");
    listener_ = GuardedFd(std::move(listener));
    Status started = caught([this] {
      start_thread([this] { serve(); }).detach();  // ends with the process
      return Status();
    });
    if (!started.ok()) listener_.reset();  // nobody would serve it
    return started;
  }

  void serve() {
    for (;;) {
      const GuardedFd client(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      if (client) {
        answer(client.get());
      } else if (errno != EINTR && errno != ECONNABORTED) {
        poll(nullptr, 0, 100);  // out of descriptors: some may become free
      }
    }
  }

  void answer(int client) {
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience_with_clients, sizeof patience_with_clients);
    Request request{};
    if (!is_same_user(client)) return;
    if (uninterrupted([&] { return recv(client, &request, sizeof request, 0); }) != sizeof request) return;
    if (sodium_memcmp(request.secret.data(), secret_.data(), secret_.size()) != 0) return;
    const std::lock_guard lock(mutex_);
    const auto it = offers_.find(request.number);
    reply(client, it == offers_.end() ? -1 : it->second.get());
  }

  std::mutex mutex_;
  // A child that held them would keep freed memory, and clients of a parent that is gone waiting.
  GuardedFd listener_;
  std::array<std::byte, 16> name_{}, secret_{};
  std::map<uint64_t, GuardedFd> offers_;
  uint64_t next_ = 1;
};

Server& server() {
  static PerProcess<Server> instance;
  return *instance;
}

/// Nothing: the server has hung up without an answer.
Result<std::optional<UniqueFd>> receive(int connection) {
  char answer = 0;
  iovec data{&answer, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = uninterrupted([&] { return recvmsg(connection, &message, MSG_CMSG_CLOEXEC); });
  if (got == 0 || (got < 0 && errno == ECONNRESET)) return std::optional<UniqueFd>();
  if (got < 0) return system_error(errno, "the exporting process did not answer");
  if ((message.msg_flags & MSG_CTRUNC) != 0)
    return error(Code::system_error,
                 "no descriptor is left for the memory: this process has as many as it may (ulimit -n)");
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (answer == 0 || header == nullptr || header->cmsg_type != SCM_RIGHTS)
    return error(Code::remote_error, "the memory was freed by its owner");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return std::optional(UniqueFd(fd));
}

Result<std::optional<UniqueFd>> ask_once(const DescriptorTicket& ticket) {
  const UniqueFd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!connection) return system_error(errno, "socket for asking for a descriptor");
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  socklen_t length = 0;
  const sockaddr_un address = address_of(ticket.socket, length);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  if (uninterrupted([&] { return connect(connection.get(), name, length); }) != 0)
    return system_error(errno, "the process that exported the memory cannot be reached");
  const Request request{ticket.secret, ticket.number};
  const ssize_t sent =
      uninterrupted([&] { return send(connection.get(), &request, sizeof request, MSG_NOSIGNAL); });
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return std::optional<UniqueFd>();
  if (sent != sizeof request) return system_error(errno, "asking the process that exported the memory");
  return receive(connection.get());
}

}  // namespace

Result<DescriptorTicket> offer_descriptor(UniqueFd descriptor) {
  return server().offer(std::move(descriptor));
}

void withdraw_descriptor(const DescriptorTicket& ticket) {
  server().withdraw(ticket.number);
}

// Who is off its core for a moment before it asks has lost the server's patience, which serves one after the other, and asks again.
Result<UniqueFd> fetch_descriptor(const DescriptorTicket& ticket) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    EPCCL_ASSIGN(auto fetched, ask_once(ticket));
    if (fetched) return std::move(*fetched);
  }
  return error(Code::remote_error, "the exporting process refused the ticket, or is gone");
}

}  // namespace epccl::device::cuda
