// Connections to a rank's port that have not said yet who they are. Each has to begin with a Hello of its transport.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>

#include "base/allowed_calls.hpp"
#include "base/descriptor_limit.hpp"
#include "base/log.hpp"
#include "base/net.hpp"
#include "base/unique_fd.hpp"
#include "transports/peer_address.hpp"

namespace epccl::transports {

/// Whether a Hello comes from a rank of this job, and means this one.
template <typename Hello>
bool is_meant_for(const Hello& hello, const Cookie& cookie, int rank, int ranks) {
  return hello.magic == Hello::expected_magic && hello.cookie == cookie && hello.to == rank &&
         hello.from >= 0 && hello.from < ranks && hello.from != rank;
}

template <typename Hello>
class Strangers {
 public:
  struct Stranger {
    UniqueFd socket;
    Hello hello;
    size_t filled = 0;
    uint64_t number = 0;
  };

  explicit Strangers(int ranks) : most_(static_cast<size_t>(ranks) + beside_ranks) {}

  /// Takes in all that wait at `listener`, whose sockets do not block. `prepare(fd, number)` sets options and has the socket
  /// watched; false: it is closed again. `greeted` as for read().
  template <typename Prepare, typename Greeted>
  void accept(int listener, int rank, Prepare prepare, Greeted greeted) {
    for (;;) {
      UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EMFILE && raise_descriptor_limit()) continue;
        if (errno == EMFILE || errno == ENFILE)
          out_of_descriptors(rank);
        else if (errno != EAGAIN)
          refused(rank, errno);
        return;
      }
      make_room_above(socket.get());
      const uint64_t number = next_++;
      if (!prepare(socket.get(), number)) continue;
      waiting_.push_back({std::move(socket), {}, 0, number});
      read(number, rank, greeted);
      make_room(rank, greeted);
    }
  }

  /// There is something to read. Once its Hello is whole, `greeted(stranger)` may take the socket; false: it is not who it should
  /// be, which is logged. Nothing of it is kept then. One that closes before that has no effect.
  template <typename Greeted>
  void read(uint64_t number, int rank, Greeted greeted) {
    const auto stranger = std::find_if(waiting_.begin(), waiting_.end(),
                                       [number](const Stranger& other) { return other.number == number; });
    if (stranger == waiting_.end()) return;
    auto* const into = reinterpret_cast<char*>(&stranger->hello);
    while (stranger->filled < sizeof(Hello)) {
      const ssize_t got =
          ::recv(stranger->socket.get(), into + stranger->filled, sizeof(Hello) - stranger->filled, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return (void)waiting_.erase(stranger);
      stranger->filled += static_cast<size_t>(got);
    }
    if (!greeted(*stranger))
      log::warn(log::net, rank, "refused a connection from {}", net::peer_name(stranger->socket.get()));
    waiting_.erase(stranger);
  }

  void clear() { waiting_.clear(); }

 private:
  // The listener stays readable: without a pause whoever watches it would spin until a descriptor is free.
  void out_of_descriptors(int rank) {
    if (!std::exchange(told_of_descriptors_, true))
      log::warn(log::net, rank, "no descriptor is left for a connection that waits (see ulimit -Hn)");
    ::usleep(1000);
  }

  void refused(int rank, int reason) {
    if (!std::exchange(told_of_refusal_, true))
      log::warn(log::net, rank, "a connection that waits cannot be taken in: {}",
                call_error(reason, "accept4").message());
    ::usleep(1000);
  }

  // Who says nothing must not keep others out; nor may a rank be sent away, which it would take for this one's end: all others may dial
  // in the same moment, and say who they are when they next look. So those that have been silent for longest go first.
  static constexpr size_t beside_ranks = 128;

  template <typename Greeted>
  void make_room(int rank, Greeted greeted) {
    while (waiting_.size() > most_) {
      const uint64_t oldest = waiting_.front().number;
      read(oldest, rank, greeted);  // it may have said so meanwhile
      if (waiting_.empty() || waiting_.front().number != oldest) continue;
      if (!std::exchange(told_of_silence_, true))
        log::warn(log::net, rank,
                  "{} connections have not said who they are; closing the oldest, the first from {}",
                  waiting_.size(), net::peer_name(waiting_.front().socket.get()));
      waiting_.pop_front();
    }
  }

  const size_t most_;
  std::list<Stranger> waiting_;
  uint64_t next_ = 0;
  bool told_of_descriptors_ = false, told_of_refusal_ = false, told_of_silence_ = false;
};

}  // namespace epccl::transports
