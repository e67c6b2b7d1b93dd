// Ranks of several nodes, all in this process: each has its node's memory, rings, a tcp transport over the loopback and what
// issues its groups. Nothing moves unless the test drives the rank: a rank that is not driven is one outside any call.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "base/clock.hpp"
#include "base/net.hpp"
#include "runtime/messages/p2p.hpp"
#include "transports/shm/shm_messages.hpp"
#include "transports/tcp/tcp_transport.hpp"

namespace epccl::runtime {

/// Far above what any step takes; only a hang reaches it.
inline constexpr double patience_seconds = 30;

/// A seed that is printed, or taken from EPCCL_TEST_SEED to repeat a run.
inline std::mt19937_64 seeded_random() {
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("EPCCL_TEST_SEED"); given != nullptr)
    seed = std::strtoull(given, nullptr, 10);
  std::printf("random seed %llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}

struct TestRank {
  std::unique_ptr<transports::NodeMemory> node;
  std::unique_ptr<transports::ShmMessages> shm;
  std::unique_ptr<transports::TcpTransport> network;
  std::unique_ptr<Carrying> carrying;
  std::unique_ptr<P2p> p2p;
};

class TestCluster {
 public:
  /// `piece_bytes`: as P2p has them.
  TestCluster(const std::vector<int>& ranks_per_node, const CarryPolicy& policy, uint64_t piece_bytes = 0)
      : cluster_(topology::Cluster::from_sizes(ranks_per_node)),
        ranks_(static_cast<size_t>(cluster_.ranks())),
        addresses_(static_cast<size_t>(cluster_.ranks())) {
    for (int node = 0; node < cluster_.nodes(); ++node) open_node(node);
    for (int rank = 0; rank < cluster_.ranks(); ++rank) open_rank(rank, policy, piece_bytes);
  }

  const topology::Cluster& shape() const { return cluster_; }
  int ranks() const { return cluster_.ranks(); }
  TestRank& operator[](int rank) { return ranks_[static_cast<size_t>(rank)]; }
  P2p& p2p(int rank) { return *ranks_[static_cast<size_t>(rank)].p2p; }
  const Carrying::Counters& counters(int rank) {
    return ranks_[static_cast<size_t>(rank)].carrying->counters();
  }
  /// Parcels that the rank has written to its lanes.
  uint64_t parcels(int rank) {
    return ranks_[static_cast<size_t>(rank)].carrying->carrier_counters().parcels;
  }

  /// Drives a rank that is in a call once; what goes wrong fails the test.
  void drive(int rank) {
    if (p2p(rank).done()) return;
    const auto moved = p2p(rank).progress();
    ASSERT_TRUE(moved.ok()) << "rank " << rank << ": " << moved.status().message();
  }
  /// Drives ranks in turn until all of them are through with their calls. False: that never came.
  bool finish(const std::vector<int>& some) {
    const double deadline = now_seconds() + patience_seconds;
    for (;;) {
      bool all = true;
      for (const int rank : some) {
        drive(rank);
        all = all && p2p(rank).done();
      }
      if (all) return true;
      if (testing::Test::HasFatalFailure() || now_seconds() > deadline) return false;
    }
  }
  /// Lets transports alone move, as a rank would that is in some other call.
  void drive_network(int rank) { ranks_[static_cast<size_t>(rank)].network->progress(); }

 private:
  void open_node(int node) {
    transports::SegmentSpec spec;
    spec.local_size = cluster_.local_size(node);
    spec.scratch_bytes = 4096;
    spec.ring_bytes = transports::message_rings_bytes(spec.local_size);
    spec.parcel_bytes = transports::ParcelBoard::bytes(spec.local_size, cluster_.nodes());
    std::vector<transports::NodeSegment> segments;
    for (int local = 0; local < spec.local_size; ++local)
      segments.push_back(must(local == 0 ? transports::NodeSegment::create(spec)
                                         : transports::NodeSegment::attach(spec, segments.front().handle())));
    for (int local = 0; local < spec.local_size; ++local)
      (*this)[cluster_.rank_at(node, local)].node =
          must(transports::NodeMemory::open(std::move(segments[static_cast<size_t>(local)]), local));
  }
  void open_rank(int rank, const CarryPolicy& policy, uint64_t piece_bytes) {
    TestRank& self = (*this)[rank];
    transports::TcpOptions options;
    for (int other = 0; other < ranks(); ++other) options.node_of.push_back(cluster_.node_of(other));
    const auto lookup = [this](int peer) -> Result<std::vector<std::byte>> {
      return addresses_[static_cast<size_t>(peer)];
    };
    self.network = must(
        transports::TcpTransport::create(rank, ranks(), must(net::local_address("lo")), lookup, options));
    addresses_[static_cast<size_t>(rank)] = self.network->address();
    self.shm = std::make_unique<transports::ShmMessages>(*self.node, true);
    self.carrying = std::make_unique<Carrying>(cluster_, rank, *self.node, self.network.get(), policy);
    self.p2p =
        std::make_unique<P2p>(cluster_, rank, *self.shm, self.network.get(), *self.carrying, piece_bytes);
  }

  const topology::Cluster cluster_;
  std::vector<TestRank> ranks_;
  std::vector<std::vector<std::byte>> addresses_;
};

/// One message of a pattern. The n-th from one rank to another meets the n-th receive there.
struct Wish {
  Wish(int from, int to, size_t bytes, uint64_t number)
      : source(from), destination(to), sent(bytes), received(bytes, 0xee) {
    uint64_t state =
        number * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(from) * 1000003u + static_cast<uint64_t>(to);
    for (size_t i = 0; i < bytes; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sent[i] = static_cast<uint8_t>(state >> 56);
    }
  }
  int source, destination;
  std::vector<uint8_t> sent, received;

  P2pOperation send() const {
    return {true, sent.data(), nullptr, sent.size(), destination, sent.size(), "uint8"};
  }
  P2pOperation recv() {
    return {false, nullptr, received.data(), received.size(), source, received.size(), "uint8"};
  }
  void expect_arrived() const {
    EXPECT_TRUE(received == sent) << "rank " << source << " to " << destination << ", " << sent.size()
                                  << " bytes";
  }
};

}  // namespace epccl::runtime
