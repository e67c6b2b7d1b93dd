// Sends and receives between pairs of ranks, started together and progressed together.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "runtime/executor/waiter.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

struct P2pOperation {
  bool is_send = false;
  const void* source = nullptr;  // send
  void* destination = nullptr;   // recv
  uint64_t bytes = 0;
  int peer = 0;
  std::string text;  // "send count 4 float32 to rank 3"
};

/// Matches the n-th send to a peer with the n-th receive from this rank there.
class P2p {
 public:
  P2p(const topology::Cluster& cluster, int rank, transports::MessageTransport& shm,
      transports::MessageTransport* network);

  /// Starts all operations. Sends to this rank itself are matched with its receives in order, and copied.
  Status start(std::vector<P2pOperation> operations);
  /// Moves things on: true when anything moved. Error: an operation failed.
  Result<bool> progress();
  bool done() const { return pending_ == 0 && drained_; }

  // For waiting.
  bool network_pending() const;
  std::string waiting_text() const;

 private:
  struct InFlight {
    P2pOperation operation;
    bool over_network = false;
    bool seen = false;
    transports::Completion completion;
  };

  Status start_remote(P2pOperation operation);
  Status match_own(std::vector<P2pOperation>& sends, std::vector<P2pOperation>& receives) const;

  const topology::Cluster& cluster_;
  const int rank_;
  transports::MessageTransport& shm_;
  transports::MessageTransport* network_;
  std::vector<uint64_t> sent_, received_;  // messages so far, by peer: the key of the next
  std::deque<InFlight> in_flight_;
  size_t pending_ = 0;
  bool drained_ = true;  // nothing that was sent still needs this rank to drive the network
};

}  // namespace epccl::runtime
