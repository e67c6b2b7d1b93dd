// Which network transport a communicator takes: by what every rank can drive, and with EPCCL_NET=measured by what is faster.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/comm/comm_config.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

/// Transports that can drive an RDMA device, as bits.
inline constexpr uint32_t ucx_driver = 1, verbs_driver = 2, all_rdma_drivers = 3;

struct NetworkChoice {
  NetworkKind kind = NetworkKind::tcp;
  std::string why;
};

/// The transport a communicator of several nodes takes where nothing is measured, and why. `drivers`: those that every rank has.
NetworkChoice choose_network(NetworkKind forced, uint32_t drivers);

/// What messages take, as medians, in seconds.
struct MessageTimes {
  double small = 0;  // 64 bytes, from one rank to the other
  double large = 0;  // 1 MiB, and 64 bytes back
};

/// Two ranks call it for each other, one of them as the leader; both get times. After `patience` seconds it ends with an error,
/// and so does everything the transport has pending.
Result<MessageTimes> time_messages(transports::MessageTransport& transport, int peer, bool leads,
                                   double patience);

/// What the times say. Measurements vary: ucx has to be faster by a tenth, in the geometric mean of both sizes. A transport that
/// failed is not taken; where both did, it is as if nothing had been measured.
NetworkChoice compare_networks(const Result<MessageTimes>& verbs, const Result<MessageTimes>& ucx);

/// Opens a transport of this rank and publishes its address under `key`.
using NetworkOpener =
    std::function<Result<std::unique_ptr<transports::MessageTransport>>(NetworkKind, const std::string& key)>;

/// Collective. The ranks `first` and `second`, of different nodes, exchange some messages over verbs and over ucx, each opened
/// for that and closed again; every rank gets the same choice. `timeout`: for how long ranks wait for each other, in seconds.
Result<NetworkChoice> measure_networks(Bootstrap& bootstrap, int rank, int first, int second, double timeout,
                                       const NetworkOpener& open);

}  // namespace epccl::runtime
