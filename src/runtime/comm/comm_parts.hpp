// What a communicator is made of when its ranks have met.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/alltoall/choose.hpp"
#include "base/status.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/bootstrap/meeting_point.hpp"
#include "runtime/comm/comm_config.hpp"
#include "runtime/comm/regroup.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

/// Alike on all ranks of a communicator; others have another.
struct CommKey {
  std::array<std::byte, 128> id{};  // through which its ranks met
  uint64_t session = 0;
  friend auto operator<=>(const CommKey&, const CommKey&) = default;
};

/// Where a communicator comes from: the one of which it was split or shrunk, and that one of which other, up to one that was not. Alike for
/// all communicators that a rank of that one has come to be in.
struct CommOrigin {
  CommKey key;
  int rank = 0;
  friend bool operator==(const CommOrigin&, const CommOrigin&) = default;
};

/// What is made once, in this order, when ranks join (comm_setup.cpp).
struct CommParts {
  CommConfig config;
  int rank = 0;
  CommKey key;
  CommOrigin origin;  // itself; of a split or shrink whoever makes it sets the parent's
  std::shared_ptr<Interrupt> interrupt;
  std::unique_ptr<MeetingPoint> meeting_point;  // null: this machine has no address
  std::unique_ptr<Bootstrap> bootstrap;
  topology::Cluster cluster;
  std::vector<std::string> hosts;        // by node
  std::vector<UniqueId> meeting_points;  // by rank
  algorithms::CostParameters cost;
  std::unique_ptr<transports::NodeMemory> node;
  bool direct = false;                                    // ranks of the node can read each other's memory
  std::unique_ptr<transports::MessageTransport> network;  // null on one node
  double began = 0;                                       // to be set up
};

/// All but the last step, which is Communicator::begin(). Blocks until all ranks are there, at most the timeout. `interrupt`, which must not be null, ends it, and later the blocking
/// calls of the control line.
Result<CommParts> set_up(const Gathering& gathering, const CommOptions& options,
                         std::shared_ptr<Interrupt> interrupt);

}  // namespace epccl::runtime
