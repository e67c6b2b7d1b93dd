// Which processes are on one node: those with the same host id.
//
// Equal means: same host name, same boot of the same kernel, same pid, network and IPC namespaces. Processes
// for which that does not hold cannot be relied on to share memory or to see each other in /proc. (User namespaces may differ: memory is
// handed over then.)
// EPCCL_HOSTID overrides it all with any text, so that one machine can stand for many nodes, or containers
// that do share for one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"

namespace epccl::topology {

struct HostId {
  uint64_t hash = 0;
  uint64_t kernel =
      0;  // equal within one boot of one kernel, whatever else differs: such processes share a machine's cores
  std::string host;        // host name, for messages
  std::string overridden;  // the text of EPCCL_HOSTID; "" when it is not set

  /// "nid001", or "nid001 (EPCCL_HOSTID=b)".
  std::string label() const;
};

/// What a host id is made of.
struct HostIdentity {
  std::string host;
  std::string boot_id;                                          // "" where /proc is not mounted
  std::vector<std::pair<std::string, std::string>> namespaces;  // ("pid", "pid:[4026531836]")
};

/// The calling process's host id. Error only when the kernel gives no host name.
Result<HostId> this_host_id();

/// As this_host_id(), from what is given. An empty override counts as none.
HostId make_host_id(const HostIdentity& identity, const std::optional<std::string>& override_text);

/// What this process's host id is made of.
Result<HostIdentity> read_host_identity();

/// The kernel's host name, "" when it gives none.
std::string host_name();

}  // namespace epccl::topology
