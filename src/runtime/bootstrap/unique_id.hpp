// The 128 bytes that name a rendezvous: address, port, and a random secret.
#pragma once

#include <array>
#include <cstddef>

#include "base/status.hpp"

namespace epccl::runtime {

struct UniqueId {
  std::array<std::byte, 128> bytes{};
};

/// Opens a rendezvous hub (hub.hpp) in this process, on a port chosen by the system, and returns its id. The hub's thread
/// lives until every rank that joined has left, or the process ends.
Result<UniqueId> create_unique_id();

}  // namespace epccl::runtime
