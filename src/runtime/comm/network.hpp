// Opens the network transport of a rank.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/comm/comm_config.hpp"
#include "runtime/comm/network_choice.hpp"
#include "topology/cluster.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

/// Those of this build that can drive a device of this machine. Where `config` leaves no choice devices are not looked at.
uint32_t rdma_drivers(const CommConfig& config);

/// Whether the kernel shows RDMA devices.
bool has_rdma_devices();

/// Whether this build can drive a port of this machine with transports/verbs; the error says what is missing, or of each port
/// what is wrong with it.
Status verbs_usable(const NetworkSettings& wishes);
/// By the settings as they are now.
Status verbs_usable();

/// By what the RDMA ports of this machine reach memory of GPU `ordinal` where it lies ("dma-buf", "nvidia_peermem"), tried with a
/// piece of it; the error says why they cannot.
Result<std::string> try_gpu_direct(int ordinal);

/// Opens the network transport of this rank and publishes its address; peers' addresses are fetched when first needed. Collective
/// where it is measured.
/// `drivers`: what every rank has of rdma_drivers(). Null on one node. Error
/// where nodes must be joined and there is nothing to join them with.
Result<std::unique_ptr<transports::MessageTransport>> open_network(Bootstrap& bootstrap,
                                                                   const topology::Cluster& cluster, int rank,
                                                                   const CommConfig& config,
                                                                   uint32_t drivers);

}  // namespace epccl::runtime
