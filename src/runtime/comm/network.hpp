// Which network transport a communicator uses.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/comm/comm_config.hpp"
#include "topology/cluster.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

/// Whether this machine has an RDMA device and this build a transport (UCX) that drives it.
bool can_use_rdma();

/// Opens the network transport of this rank and publishes its address; peers' addresses are fetched when first needed.
/// `all_have_rdma`: can_use_rdma() of every rank. Null on one node. Error
/// where nodes must be joined and there is nothing to join them with.
Result<std::unique_ptr<transports::MessageTransport>> open_network(Bootstrap& bootstrap,
                                                                   const topology::Cluster& cluster, int rank,
                                                                   const CommConfig& config,
                                                                   bool all_have_rdma);

}  // namespace epccl::runtime
