#include "perf/src/overlap/bare_sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "base/net.hpp"

namespace epccl::perf {
namespace {

constexpr double patience = 30;  // seconds, for the other rank to do anything
constexpr size_t wake_bytes = 256 << 10;

Status broken(const char* what) {
  return error(Code::system_error, "--overlap-sockets: {}: {}", what, std::strerror(errno));
}

/// Rank 0 listens, rank 1 connects. Collective.
Result<UniqueFd> connect_pair(Coordinator& coordinator) {
  EPCCL_ASSIGN(net::Endpoint here, net::local_address(net::selected_interfaces()));
  EPCCL_ASSIGN(const UniqueFd listener, net::listen_at(here));
  EPCCL_ASSIGN(const std::vector<net::Endpoint> all,
               coordinator.gather(std::span<const net::Endpoint>(&here, 1)));
  UniqueFd line;
  if (coordinator.rank() == 1) {
    EPCCL_ASSIGN(line, net::connect_to(all.front(), patience));
  } else {
    if (!net::wait_for(listener.get(), POLLIN, now_seconds() + patience))
      return error(Code::system_error, "--overlap-sockets: rank 1 did not connect within {} s", patience);
    line.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!line) return broken("accept");
  }
  const int on = 1;
  if (::setsockopt(line.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) return broken("TCP_NODELAY");
  return line;
}

}  // namespace

class BareSockets::Exchanger {
 public:
  Exchanger(UniqueFd line, std::vector<size_t> bytes) : line_(std::move(line)), bytes_(std::move(bytes)) {
    const size_t most = *std::max_element(bytes_.begin(), bytes_.end());
    out_.resize(most);
    in_.resize(most);
    thread_ = std::thread([this] { serve(); });
  }

  ~Exchanger() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    ::shutdown(line_.get(), SHUT_RDWR);
    changed_.notify_all();
    thread_.join();
  }

  void start() {
    {
      const std::lock_guard lock(mutex_);
      ++started_;
    }
    changed_.notify_all();
  }

  Status finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_ == started_; });
    return status_;
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ends_ || done_ != started_; });
      if (ends_) return;
      lock.unlock();
      Status status;
      for (const size_t bytes : bytes_)
        if (status.ok()) status = exchange(bytes);
      lock.lock();
      if (status_.ok()) status_ = std::move(status);
      ++done_;
      changed_.notify_all();
    }
  }

  Status exchange(size_t bytes) {
    size_t sent = 0, received = 0;
    while (true) {
      EPCCL_TRY(send_some(bytes, sent));
      EPCCL_TRY(receive_some(bytes, received));
      if (sent == bytes && received == bytes) return {};
      EPCCL_TRY(wake_after(std::min(wake_bytes, bytes - received)));
      const auto events = static_cast<short>((sent < bytes ? POLLOUT : 0) | (received < bytes ? POLLIN : 0));
      if (!net::wait_for(line_.get(), events, now_seconds() + patience))
        return error(Code::remote_error, "--overlap-sockets: the other rank was silent for {} s", patience);
    }
  }

  Status send_some(size_t bytes, size_t& sent) {
    if (sent == bytes) return {};
    const ssize_t part = ::send(line_.get(), out_.data() + sent, bytes - sent, MSG_NOSIGNAL);
    if (part < 0 && errno != EAGAIN && errno != EINTR) return broken("send");
    sent += static_cast<size_t>(std::max<ssize_t>(part, 0));
    return {};
  }

  Status receive_some(size_t bytes, size_t& received) {
    if (received == bytes) return {};
    const ssize_t part = ::recv(line_.get(), in_.data() + received, bytes - received, 0);
    if (part == 0)
      return error(Code::remote_error, "--overlap-sockets: the other rank has closed its socket");
    if (part < 0 && errno != EAGAIN && errno != EINTR) return broken("recv");
    received += static_cast<size_t>(std::max<ssize_t>(part, 0));
    return {};
  }

  Status wake_after(size_t bytes) {
    const int wanted = static_cast<int>(std::max<size_t>(bytes, 1));
    if (wanted == low_water_) return {};
    low_water_ = wanted;
    return ::setsockopt(line_.get(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted) == 0
               ? Status()
               : broken("SO_RCVLOWAT");
  }

  UniqueFd line_;
  std::vector<size_t> bytes_;
  std::vector<std::byte> out_, in_;
  int low_water_ = 1;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t started_ = 0, done_ = 0;
  bool ends_ = false;
  Status status_;
  std::thread thread_;
};

BareSockets::BareSockets(std::unique_ptr<Exchanger> exchanger) : exchanger_(std::move(exchanger)) {}

BareSockets::~BareSockets() = default;

Result<std::unique_ptr<BareSockets>> BareSockets::connect(Coordinator& coordinator,
                                                          std::vector<size_t> bytes) {
  if (coordinator.ranks() != 2)
    return error(Code::invalid_argument, "--overlap-sockets is for 2 ranks, not {}", coordinator.ranks());
  EPCCL_ASSIGN(UniqueFd line, connect_pair(coordinator));
  return std::unique_ptr<BareSockets>(
      new BareSockets(std::make_unique<Exchanger>(std::move(line), std::move(bytes))));
}

Status BareSockets::call() {
  EPCCL_TRY(start());
  return finish();
}

Status BareSockets::start() {
  exchanger_->start();
  return {};
}

Status BareSockets::finish() {
  return exchanger_->finish();
}

}  // namespace epccl::perf
