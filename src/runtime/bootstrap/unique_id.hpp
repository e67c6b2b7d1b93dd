// The 128 bytes that name a rendezvous: address, port, and a random secret.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.hpp"

namespace epccl::runtime {

/// One byte of an id is not EPCCL's: bindings may put a mark there, and take it away before they pass the id on.
inline constexpr size_t mark_of_bindings_at = 9;

struct UniqueId {
  std::array<std::byte, 128> bytes{};
};

/// Opens a rendezvous hub (hub.hpp) in this process, on a port chosen by the system, and returns its id. The hub's thread
/// lives until every rank of a complete group has left, the id is discarded, or the process ends.
Result<UniqueId> create_unique_id();

/// Error: why these bytes are no unique id.
Status check_unique_id(const UniqueId& id);

/// A number for these ids in this order.
uint64_t digest(std::span<const UniqueId> ids);

/// Closes the rendezvous of an id that nobody will use, if this process made it. Ranks that have come there all the same are told why.
void discard_unique_id(const UniqueId& id, const std::string& why = "");

}  // namespace epccl::runtime
