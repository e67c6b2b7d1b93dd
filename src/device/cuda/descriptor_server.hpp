// Hands this process's file descriptors to other processes of the same user, which cannot reach them otherwise: a descriptor
// of GPU memory cannot be opened through /proc. A thread, started at the first offer, answers on a socket without a name in the
// file system.
//
//   exporter                                 importer
//   offer(fd) -> ticket  --- ticket --->     fetch(ticket)
//                        <-- secret, number -
//                        --- descriptor --->
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace epccl::device::cuda {

/// How another process asks for a descriptor. Plain bytes.
struct DescriptorTicket {
  std::array<std::byte, 16> socket{};  // random: the name of the exporter's socket
  std::array<std::byte, 16> secret{};  // only who was told it is answered
  uint64_t number = 0;                 // of the offer
};

/// Takes the descriptor over; it is given to all who ask with the ticket until withdraw().
Result<DescriptorTicket> offer_descriptor(UniqueFd descriptor);
void withdraw_descriptor(const DescriptorTicket& ticket);

/// Asks the process that made the ticket, for at most 10 s.
Result<UniqueFd> fetch_descriptor(const DescriptorTicket& ticket);

}  // namespace epccl::device::cuda
