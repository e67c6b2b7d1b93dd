// Where a rendezvous is reached.
#pragma once

#include "base/net.hpp"
#include "base/status.hpp"

namespace epccl::runtime {

/// The address that the interfaces of EPCCL_SOCKET_IFNAME give; no port yet.
Result<net::Endpoint> address_of_interfaces();

/// Where the rendezvous of an id is: EPCCL_COMM_ID's address, or the one that interfaces give. That setting is for the rank 0 of all, and
/// the same everywhere: another rank that makes an id, for a group of which it is the first, is not there, or would take its port.
Result<net::Endpoint> chosen_endpoint();

}  // namespace epccl::runtime
