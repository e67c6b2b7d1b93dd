// Ranks of one process, each with its own transport, connected over the loopback and driven in turn.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "base/clock.hpp"
#include "makers.hpp"

namespace epccl::transports {

#if defined(EPCCL_WITH_UCX) && defined(EPCCL_WITH_VERBS)
using Makers = testing::Types<Tcp, Ucx, Verbs>;
#elif defined(EPCCL_WITH_UCX)
using Makers = testing::Types<Tcp, Ucx>;
#elif defined(EPCCL_WITH_VERBS)
using Makers = testing::Types<Tcp, Verbs>;
#else
using Makers = testing::Types<Tcp>;
#endif

/// Tests of a transport that this machine cannot have are skipped, and say why.
template <typename Maker>
class OfTransport : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = Maker::missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

struct MakerNames {
  template <typename Maker>
  static std::string GetName(int) {
    return Maker::name;
  }
};

/// Far above what any step takes; only a hang reaches it.
inline constexpr double patience_seconds = 100;

template <typename Maker>
class Fabric {
 public:
  using Transport = typename Maker::Transport;

  explicit Fabric(int ranks) : lookups_(static_cast<size_t>(ranks), 0) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto lookup = [this](int peer) -> Result<std::vector<std::byte>> {
        ++lookups_[static_cast<size_t>(peer)];
        return addresses_[static_cast<size_t>(peer)];
      };
      auto transport = Maker::create(rank, ranks, lookup);
      if (!transport.ok()) throw std::runtime_error(transport.status().message());
      transports_.push_back(std::move(transport).value());
      addresses_.push_back(transports_.back()->address());
    }
  }

  Transport& operator[](int rank) { return *transports_[static_cast<size_t>(rank)]; }
  int ranks() const { return static_cast<int>(transports_.size()); }
  /// How often anybody asked for this rank's address.
  int lookups(int rank) const { return lookups_[static_cast<size_t>(rank)]; }
  void destroy(int rank) { transports_[static_cast<size_t>(rank)].reset(); }
  std::unique_ptr<Transport> take(int rank) { return std::move(transports_[static_cast<size_t>(rank)]); }

  void progress() {
    for (auto& transport : transports_) {
      if (transport) transport->progress();
    }
  }

  /// Drives all ranks until `done()`; false when it never came.
  template <typename Predicate>
  bool drive_until(Predicate done) {
    const double deadline = now_seconds() + patience_seconds;
    while (!done()) {
      if (now_seconds() > deadline) return false;
      progress();
    }
    return true;
  }
  bool finish(const Completion& completion) {
    return drive_until([&] { return completion.finished(); });
  }
  /// Lets whatever is under way arrive: drives all ranks for a number of quiet rounds.
  void settle() {
    for (int quiet = 0; quiet < 2000; ++quiet) {
      for (auto& transport : transports_) {
        if (transport && transport->progress()) quiet = 0;
      }
    }
  }

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::vector<std::byte>> addresses_;
  std::vector<int> lookups_;
};

/// Bytes that only this message carries: unique to (source, destination, key, offset).
inline std::vector<uint8_t> pattern(int source, int destination, uint64_t key, size_t bytes) {
  std::vector<uint8_t> data(bytes);
  uint64_t state = key * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(source) * 1000003u +
                   static_cast<uint64_t>(destination) * 8191u + 1;
  for (size_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) state = state * 6364136223846793005u + 1442695040888963407u;
    data[i] = static_cast<uint8_t>(state >> (i % 8 * 8));
  }
  return data;
}

/// One message from posting to checking.
struct Message {
  Message(int from, int to, MessageKey with_key, size_t bytes)
      : source(from),
        destination(to),
        key(with_key),
        sent(pattern(from, to, with_key, bytes)),
        received(bytes, 0xee) {}

  template <typename AnyFabric>
  Status send(AnyFabric& fabric) {
    return fabric[source].send(destination, key, sent.data(), sent.size(), sending);
  }
  template <typename AnyFabric>
  Status recv(AnyFabric& fabric) {
    return fabric[destination].recv(source, key, received.data(), received.size(), receiving);
  }
  bool finished() const { return sending.finished() && receiving.finished(); }
  void expect_arrived() const {
    ASSERT_EQ(sending.state, Completion::State::done) << sending.status.message();
    ASSERT_EQ(receiving.state, Completion::State::done) << receiving.status.message();
    EXPECT_EQ(receiving.bytes, sent.size());
    EXPECT_TRUE(received == sent) << "rank " << source << " to " << destination << ", key " << key << ", "
                                  << sent.size() << " bytes";
  }

  int source, destination;
  MessageKey key;
  std::vector<uint8_t> sent, received;
  Completion sending, receiving;
};

/// Receives what was sent before anybody asked for it.
template <typename AnyFabric>
void receive_late(AnyFabric& fabric, std::deque<Message>& messages) {
  fabric.settle();
  for (Message& message : messages) {
    (void)message.recv(fabric);
    ASSERT_TRUE(fabric.finish(message.receiving));
    message.expect_arrived();
  }
}

/// A seed that is printed, or taken from GTEST_RANDOM_SEED to repeat a run.
inline std::mt19937_64 seeded_random() {
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("GTEST_RANDOM_SEED"); given != nullptr)
    seed = std::strtoull(given, nullptr, 10);
  std::printf("random seed %llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}

}  // namespace epccl::transports
