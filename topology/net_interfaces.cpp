#include "topology/net_interfaces.hpp"

#include <net/if.h>

#include <filesystem>
#include <map>
#include <memory>

#include "topology/first_line.hpp"
#include "topology/parse_number.hpp"

namespace epccl::topology {
namespace {

namespace fs = std::filesystem;

// <net/if_arp.h>'s names are macros of a header that clashes with kernel headers elsewhere.
constexpr int64_t type_ethernet = 1;
constexpr int64_t type_infiniband = 32;

struct Interface {
  std::string name;
  int64_t type = 0;
  int64_t speed_mbit = 0;
  bool up = false;
  bool physical = false;
  bool wanted = false;
  std::optional<BusId> bus_id;
};

/// The PCI device above an interface: the last bus id in ".../0000:00:03.0/virtio2".
std::optional<BusId> pci_above(const fs::path& device_link) {
  std::error_code failed;
  const fs::path device = fs::canonical(device_link, failed);
  std::optional<BusId> id;
  if (!failed)
    for (const auto& part : device)
      if (const auto parsed = BusId::parse(part.string())) id = parsed;
  return id;
}

Interface describe(const fs::path& directory, const std::string& name) {
  Interface interface;
  interface.name = name;
  interface.type = parse_integer(first_line(directory / "type"), 0, INT32_MAX).value_or(type_ethernet);
  interface.speed_mbit = parse_integer(first_line(directory / "speed"), 0, INT32_MAX).value_or(0);
  const std::string state = first_line(directory / "operstate");
  interface.up = state == "up" || state == "unknown";  // many virtual drivers say "unknown" when up
  std::error_code ignored;
  interface.physical = fs::exists(directory / "device", ignored);
  if (interface.physical) interface.bus_id = pci_above(directory / "device");
  const bool has_hardware_type = interface.type == type_ethernet || interface.type == type_infiniband;
  const bool inner = fs::exists(directory / "bridge", ignored) || fs::exists(directory / "master", ignored);
  interface.wanted = has_hardware_type && (interface.physical || (interface.up && !inner));
  return interface;
}

/// Interfaces of this network namespace: name and number.
std::map<std::string, unsigned> interfaces_here() {
  std::map<std::string, unsigned> found;
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> list(if_nameindex(),
                                                                                  if_freenameindex);
  if (list == nullptr) return found;
  for (const struct if_nameindex* entry = list.get(); entry->if_index != 0; ++entry)
    found.emplace(entry->if_name, entry->if_index);
  return found;
}

/// /sys may be mounted from another network namespace, where the same name is another interface.
bool describes(const fs::path& directory, unsigned index) {
  return first_line(directory / "ifindex") == fmt::format("{}", index);
}

Status add_or_complete(MachineBuilder& builder, const Interface& found) {
  for (Nic& nic : builder.nics()) {
    if (nic.interface != found.name) continue;
    if (nic.speed_mbit == 0) nic.speed_mbit = found.speed_mbit;
    if (nic.rdma_device.empty()) nic.up = found.up;
    return {};
  }
  Nic nic;
  nic.interface = found.name;
  nic.speed_mbit = found.speed_mbit;
  nic.up = found.up;
  nic.kind = found.type == type_infiniband ? NicKind::infiniband : NicKind::ethernet;
  nic.bus_id = found.bus_id;
  nic.pci = found.bus_id ? builder.find_pci_device(*found.bus_id) : -1;
  if (builder.so_far().numa_nodes.size() == 1) nic.numa = 0;
  return builder.add_nic(std::move(nic));
}

}  // namespace

Status add_net_interfaces(MachineBuilder& builder, const std::string& sysfs) {
  return add_net_interfaces(builder, sysfs, interfaces_here());
}

Status add_net_interfaces(MachineBuilder& builder, const std::string& sysfs,
                          const std::map<std::string, unsigned>& interfaces) {
  const auto is_here = [&](const std::string& name) {
    const auto found = interfaces.find(name);
    return found != interfaces.end() && describes(fs::path(sysfs) / name, found->second);
  };
  builder.remove_nics([&](const Nic& nic) {
    return nic.rdma_device.empty() && !nic.interface.empty() && !is_here(nic.interface);
  });
  for (const auto& [name, index] : interfaces) {
    Interface interface;
    if (is_here(name)) {
      interface = describe(fs::path(sysfs) / name, name);
    } else {
      interface.name = name;
      interface.type = type_ethernet;
      interface.up = interface.wanted = name != "lo";
    }
    if (interface.wanted) EPCCL_TRY(add_or_complete(builder, interface));
  }
  return {};
}

}  // namespace epccl::topology
