// How many descriptors this process may have open (RLIMIT_NOFILE).
//
// The soft limit is 1024 almost everywhere, as programs that call select() want it, and far below the hard one. It is raised
// only as descriptors come near it: a rendezvous, or sockets to as many ranks, need more, and most jobs do not.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace epccl {

/// The limit as it is now, and the highest to which raise_descriptor_limit() goes; UINT64_MAX: none.
struct DescriptorLimit {
  uint64_t now = 0, highest = 0;
};
DescriptorLimit descriptor_limit();

/// Doubles the limit, or takes the highest. False: it cannot be raised.
bool raise_descriptor_limit();

/// As system_error(), of what would have opened a descriptor; where none are left that says so. `whose` text: "this", for who reads it.
Status descriptor_error(int errno_value, const std::string& what, const char* whose = "this");

/// After `descriptor` was opened: raises the limit where half of it is in use (numbers are given from the lowest on that is free).
void make_room_above(int descriptor);

/// What `open()` opens (a descriptor; below 0 with errno: none), also where the limit has to be raised for it.
template <typename Open>
UniqueFd open_within_limit(Open open) {
  UniqueFd fd(open());
  if (!fd && errno == EMFILE && raise_descriptor_limit()) fd.reset(open());
  if (fd) make_room_above(fd.get());
  return fd;
}

}  // namespace epccl
