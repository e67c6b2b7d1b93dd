// A port of an RDMA device: which of them a rank uses, and how it is addressed.
#pragma once

#include <string>
#include <vector>

#include "transports/verbs/verbs_library.hpp"

namespace epccl::transports::verbs {

/// More ports than this a rank does not use at once.
inline constexpr int max_rails = 4;

struct PortChoice {
  /// Devices by name, as EPCCL_VERBS_DEVICES has them: "mlx5_0,mlx5_3" by prefix, "=mlx5_1" exactly, "mlx5_1:2" with a port,
  /// "^mlx5_9" all but. "": any.
  std::string devices = {};
  int gid_index = -1;  // -1: the best there is
  int most = max_rails;
  /// Devices of this rank's choice come first, in this order.
  std::vector<std::string> preferred = {};
};

struct Port {
  std::string device;
  uint8_t number = 1;
  bool ethernet = false;  // RoCE
  ibv_gid gid{};
  uint8_t gid_index = 0;
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  uint32_t max_message = 0;
  int max_queue_pairs = 0, max_completions = 0, max_receives = 0;

  std::string name() const { return fmt::format("{} port {}", device, number); }
};

/// An open device and one of its ports.
struct OpenPort {
  Owned<ibv_context> context;
  Port port;
};

/// Whether a device's port is meant by PortChoice::devices.
bool device_selected(const std::string& selection, const std::string& device, int port);

/// The ports of this machine that are up and chosen, opened. An error where there is none; it says of each what is wrong.
Result<std::vector<OpenPort>> open_ports(const Library& library, const PortChoice& choice);

/// The GID that others reach a port by: of the RoCE v2 ones an IPv4 address before IPv6, and link-local last; of InfiniBand
/// the first. `forced` >= 0: that one. Errors name the device, the index and what it holds.
Result<ibv_gid_entry> choose_gid(const Library& library, ibv_context& context, const std::string& name,
                                 uint8_t number, const ibv_port_attr& attributes, int forced);

}  // namespace epccl::transports::verbs
