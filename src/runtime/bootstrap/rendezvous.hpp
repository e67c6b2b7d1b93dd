// What a UniqueId says, taken apart.
//
//   | magic 8 | version 1 | zero 1 | port 2 | scope 4 | address 16 | secret 32 | zero 48 | checksum 16 |   =
//   128
#pragma once

#include "base/net.hpp"
#include "base/status.hpp"
#include "runtime/bootstrap/handshake.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::runtime {

struct Rendezvous {
  net::Endpoint endpoint;
  Secret secret{};
};

UniqueId encode(const Rendezvous& rendezvous);

/// Refuses what encode() did not write: wrong magic, another version, a checksum that does not match.
Result<Rendezvous> decode(const UniqueId& id);

/// Name of this node for messages: EPCCL_HOSTID where it is set, else the host name.
std::string this_host();

}  // namespace epccl::runtime
