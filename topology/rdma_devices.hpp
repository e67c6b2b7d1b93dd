// Everything that libibverbs says of this machine's RDMA devices, for people who look for what is wrong with one.
//
// Discovery (verbs_ports.hpp) takes what placement needs; this also has addresses, limits, and what could not be asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "topology/bus_id.hpp"

namespace epccl::topology {

struct RdmaGid {
  int index = 0;
  std::string address;  // as IPv6, "::ffff:10.0.0.1" where it holds IPv4
  std::string type;     // "IB", "RoCE v1", "RoCE v2"
};

struct RdmaPort {
  int port = 0;            // from 1
  std::string state;       // "active", "down", ...
  std::string link_layer;  // "InfiniBand", "Ethernet", "unknown"
  int64_t speed_mbit = 0;  // 0 = unknown
  int mtu = 0;             // active; 0 = unknown
  int mtu_max = 0;
  uint16_t lid = 0;  // InfiniBand only
  std::vector<RdmaGid> gids;
  std::vector<std::string> not_asked;  // what could not be asked, and why
};

struct RdmaDevice {
  std::string name;
  uint64_t guid = 0;
  std::string firmware;
  std::optional<BusId> bus_id;
  int max_queue_pairs = 0, max_completions = 0;
  std::vector<RdmaPort> ports;
  std::vector<std::string> not_asked;
};

/// All devices, in the library's order; none where the kernel has no RDMA. A device or port that does not answer is listed with
/// what failed. Error where the library is not there, or this build has not its header.
Result<std::vector<RdmaDevice>> query_rdma_devices(const std::string& library = "libibverbs.so.1");

/// A GID's 16 bytes as an IPv6 address.
std::string gid_text(const uint8_t* raw);

}  // namespace epccl::topology
