// Ranks for the tests: threads of this process, or forked processes.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/settings.hpp"
#include "runtime/bootstrap/bootstrap.hpp"

namespace epccl::test {

using runtime::Blob;
using runtime::Bootstrap;
using runtime::Notice;
using runtime::UniqueId;

/// Long enough for a busy machine; no test that passes waits for it.
inline constexpr double patience = 20;

/// Calls body(rank) on a thread per rank and waits for all.
inline void on_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([rank, &body] { body(rank); });
}

/// All ranks of a fresh communicator, joined; index = rank. Ranks [0, ranks) except those in `elsewhere`.
inline std::vector<std::unique_ptr<Bootstrap>> join_all(const UniqueId& id, int ranks, int first = 0) {
  std::vector<std::unique_ptr<Bootstrap>> joined(static_cast<size_t>(ranks));
  on_ranks(ranks - first, [&](int index) {
    const int rank = first + index;
    auto result = Bootstrap::join(id, rank, ranks, patience);
    EXPECT_TRUE(result.ok()) << "rank " << rank << ": " << result.status().message();
    if (result.ok()) joined[static_cast<size_t>(rank)] = std::move(result).value();
  });
  return joined;
}

/// A rendezvous on the loopback interface, so that the tests do not depend on the machine's network.
inline UniqueId fresh_id() {
  setenv("EPCCL_SOCKET_IFNAME", "lo", 1);
  auto id = runtime::create_unique_id();
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? *id : UniqueId{};
}

/// The next notice, waiting on fd() as the library does.
inline std::optional<Notice> wait_for_notice(Bootstrap& line, double seconds = patience) {
  const double deadline = now_seconds() + seconds;
  while (now_seconds() < deadline) {
    pollfd entry{line.fd(), POLLIN, 0};
    poll(&entry, 1, 100);
    if (entry.revents == 0) continue;
    if (auto notice = line.poll_notice()) return notice;
  }
  return std::nullopt;
}

inline Blob to_blob(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::string to_text(const Blob& blob) {
  return {reinterpret_cast<const char*>(blob.data()), blob.size()};
}

/// A forked process that runs `body` and must be forked before this process has threads of its own. Killed
/// and reaped at the end of the test whatever happens.
class Child {
 public:
  explicit Child(const std::function<void(Child&)>& body) {
    if (pipe(to_child_) != 0 || pipe(to_parent_) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      std::swap(to_child_, to_parent_);  // index 0 of to_parent_ is what this side reads
      leave_to_the_other_side();
      body(*this);
      _exit(0);
    }
    leave_to_the_other_side();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {to_child_[0], to_child_[1], to_parent_[0]}) close(fd);
  }

  pid_t pid() const { return pid_; }
  void kill() const { ::kill(pid_, SIGKILL); }
  /// Status of waitpid.
  int wait() {
    int status = -1;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

  /// To and from the other side.
  template <typename T>
  void put(const T& value) const {
    EXPECT_EQ(::write(to_child_[1], &value, sizeof value), static_cast<ssize_t>(sizeof value));
  }
  template <typename T>
  T get() const {
    T value{};
    EXPECT_EQ(::read(to_parent_[0], &value, sizeof value), static_cast<ssize_t>(sizeof value));
    return value;
  }

 private:
  /// The end that it writes to: get() ends with that.
  void leave_to_the_other_side() const { close(to_parent_[1]); }

  int to_child_[2] = {-1, -1}, to_parent_[2] = {-1, -1};
  pid_t pid_ = -1;
};

/// Prints the seed, so that a failure can be repeated with TEST_SEED.
inline std::mt19937_64 seeded_random() {
  const char* wanted = std::getenv("TEST_SEED");
  const uint64_t seed = wanted ? std::strtoull(wanted, nullptr, 10) : std::random_device{}();
  std::printf("TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

}  // namespace epccl::test
