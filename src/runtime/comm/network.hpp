// Which network transport a communicator uses.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "topology/cluster.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

/// Opens the network transport of this rank and publishes its address; peers' addresses are fetched when first needed.
/// Null on one node. Error where nodes must be joined and there is nothing to join them with.
Result<std::unique_ptr<transports::MessageTransport>> open_network(Bootstrap& bootstrap, const topology::Cluster& cluster,
                                                                   int rank, bool allowed);

}  // namespace epccl::runtime
