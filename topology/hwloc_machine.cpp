#include "topology/hwloc_machine.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "topology/parse_number.hpp"
#include "topology/pci_ids.hpp"

namespace epccl::topology {
namespace {

std::string info(const HwlocObject& object, const std::string& name) {
  const auto found = object.infos.find(name);
  return found == object.infos.end() ? "" : found->second;
}

bool is_io(const HwlocObject& object) {
  return object.kind != HwlocKind::other && object.kind != HwlocKind::numa_node;
}

bool is_os_device(const HwlocObject& object, HwlocOsDevice type) {
  return object.kind == HwlocKind::os_device && object.os_device == type && !object.name.empty();
}

/// hwloc writes GUIDs as "0800:3800:01bf:f8d8".
uint64_t parse_guid(std::string text) {
  std::erase(text, ':');
  return parse_hex(text).value_or(0);
}

/// "nvml3" -> 3 for the prefix "nvml".
std::optional<int> number_after(const std::string& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto number = parse_integer(std::string_view(name).substr(prefix.size()), 0, 1'000'000);
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

class HwlocWalk {
 public:
  HwlocWalk(const HwlocTree& tree, MachineBuilder& builder) : tree_(tree), builder_(builder) {}

  Status run() {
    const std::string product = info(tree_.root, "DMIProductName");
    if (product != "To be filled by O.E.M.") builder_.set_name(product);
    EPCCL_TRY(add_numa_nodes(tree_.root));
    EPCCL_TRY(add_io_below(tree_.root, -1));
    for (const HwlocLinks& links : tree_.links) EPCCL_TRY(add_links(links));
    return {};
  }

 private:
  Status add_numa_nodes(const HwlocObject& object) {
    if (object.kind == HwlocKind::numa_node) {
      NumaNode node{object.os_index, object.cpus, object.memory_bytes};
      EPCCL_ASSIGN(numa_of_os_index_[object.os_index], builder_.add_numa_node(std::move(node)));
    }
    for (const HwlocObject& child : object.children) EPCCL_TRY(add_numa_nodes(child));
    return {};
  }

  int numa_position(int os_index) const {
    if (os_index < 0 && numa_of_os_index_.size() == 1) return 0;
    const auto found = numa_of_os_index_.find(os_index);
    return found == numa_of_os_index_.end() ? -1 : found->second;
  }

  Status add_io_below(const HwlocObject& object, int near_numa) {
    const int near = is_io(object) ? near_numa : object.near_numa;
    for (const HwlocObject& child : object.children)
      EPCCL_TRY(is_io(child) ? add_io(child, -1, numa_position(near)) : add_io_below(child, near));
    return {};
  }

  Status add_io(const HwlocObject& object, int parent, int numa) {
    if (object.kind == HwlocKind::os_device) return add_os_device_off_pci(object, numa);
    PciDevice device{object.bus_id, PciKind::endpoint, object.pci_class, object.vendor,
                     object.device, object.gb_per_s,   parent,           numa};
    if (object.kind == HwlocKind::host_bridge) device.kind = PciKind::host_bridge;
    if (object.kind == HwlocKind::bridge) device.kind = bridge_kind(parent);
    EPCCL_ASSIGN(const int position, builder_.add_pci_device(device));
    if (object.kind == HwlocKind::pci_device) EPCCL_TRY(add_functions(object, position));
    for (const HwlocObject& child : object.children)
      if (is_io(child) && child.kind != HwlocKind::os_device) EPCCL_TRY(add_io(child, position, numa));
    return {};
  }

  /// PCI Express alternates: root port, then a switch's upstream port, its downstream ports, and so on.
  PciKind bridge_kind(int parent) const {
    const auto& devices = builder_.so_far().pci_devices;
    const bool below_port = parent >= 0 && devices[static_cast<size_t>(parent)].kind == PciKind::port;
    return below_port ? PciKind::pci_switch : PciKind::port;
  }

  Status add_functions(const HwlocObject& object, int position) {
    const bool switch_by_class = is_gpu_switch_class(object.pci_class) && object.vendor == vendor_nvidia;
    if (object.subtype == "NVSwitch" || switch_by_class)
      return builder_.add_switch(object.bus_id.to_string());
    return is_network_class(object.pci_class) ? add_nics(object, position) : add_gpu(object, position);
  }

  /// A GPU by its class, or because a compute runtime calls it one (consumer cards are VGA controllers, as
  /// are the consoles of servers).
  Status add_gpu(const HwlocObject& object, int position) {
    Gpu gpu;
    gpu.bus_id = object.bus_id;
    gpu.pci = position;
    bool is_gpu = is_gpu_class(object.pci_class, object.vendor);
    std::array<std::optional<int>, 3> numbers;  // by source, the most telling first
    for (const HwlocObject& os : object.children) {
      if (!is_os_device(os, HwlocOsDevice::coprocessor) && !is_os_device(os, HwlocOsDevice::gpu)) continue;
      constexpr std::array prefixes{"nvml", "rsmi", "cuda"};
      for (size_t i = 0; i < prefixes.size(); ++i) {
        const auto number = number_after(os.name, prefixes[i]);
        is_gpu = is_gpu || number;
        if (number) numbers[i] = number;
      }
      const bool opencl_gpu = os.name.starts_with("opencl") && info(os, "OpenCLDeviceType") == "GPU";
      is_gpu = is_gpu || opencl_gpu || os.name.starts_with("ze");
      if (gpu.model.empty()) gpu.model = info(os, "GPUModel");
    }
    if (!is_gpu) return {};
    const auto number =
        std::find_if(numbers.begin(), numbers.end(), [](const auto& n) { return n.has_value(); });
    return builder_.add_gpu(std::move(gpu), number == numbers.end() ? std::nullopt : *number);
  }

  /// One NIC per port of an RDMA device; else one per interface; else one for the bare PCI device.
  Status add_nics(const HwlocObject& object, int position) {
    bool any = false;
    for (const HwlocObject& os : object.children) {
      if (!is_os_device(os, HwlocOsDevice::openfabrics)) continue;
      EPCCL_TRY(add_rdma_ports(os, object, position));
      any = true;
    }
    if (any) return {};
    Nic nic;
    nic.pci = position;
    for (const HwlocObject& os : object.children) {
      if (!is_os_device(os, HwlocOsDevice::network)) continue;
      nic.interface = os.name;
      EPCCL_TRY(builder_.add_nic(nic));
      any = true;
    }
    return any ? Status{} : builder_.add_nic(std::move(nic));
  }

  Status add_rdma_ports(const HwlocObject& device, const HwlocObject& pci, int position) {
    constexpr int max_ports = 16;
    constexpr const char* active = "4";
    for (int port = 1; port <= max_ports; ++port) {
      const std::string state = info(device, fmt::format("Port{}State", port));
      if (state.empty() && port > 1) continue;
      Nic nic;
      nic.pci = position;
      nic.rdma_device = device.name;
      nic.port = port;
      nic.guid = parse_guid(info(device, "NodeGUID"));
      nic.up = state.empty() || state == active;
      nic.interface = interface_of_port(pci, port);
      EPCCL_TRY(builder_.add_nic(std::move(nic)));
    }
    return {};
  }

  static std::string interface_of_port(const HwlocObject& pci, int port) {
    std::vector<std::string> names;
    for (const HwlocObject& os : pci.children) {
      if (!is_os_device(os, HwlocOsDevice::network)) continue;
      if (info(os, "Port") == fmt::format("{}", port)) return os.name;
      names.push_back(os.name);
    }
    return names.size() == 1 ? names.front() : "";
  }

  /// Paravirtual devices' OS devices may hang on the machine itself.
  Status add_os_device_off_pci(const HwlocObject& object, int numa) {
    if (!is_os_device(object, HwlocOsDevice::network)) return {};
    Nic nic;
    nic.interface = object.name;
    nic.kind = NicKind::ethernet;
    nic.numa = numa;
    return builder_.add_nic(std::move(nic));
  }

  Status add_links(const HwlocLinks& links) {
    const size_t count = links.devices.size();
    for (size_t from = 0; from < count; ++from) {
      const Gpu* gpu = builder_.find_gpu(links.devices[from]);
      if (gpu == nullptr) continue;
      for (size_t to = 0; to < count; ++to) {
        const uint64_t mb_per_s = links.mb_per_s[from * count + to];
        if (to != from && mb_per_s > 0) EPCCL_TRY(add_link(*gpu, links.kind, links.devices[to], mb_per_s));
      }
    }
    return {};
  }

  Status add_link(const Gpu& gpu, LinkKind kind, const BusId& peer, uint64_t mb_per_s) {
    const LinkEnd end = builder_.find_gpu(peer) != nullptr ? LinkEnd::gpu : LinkEnd::gpu_switch;
    const double one_link = gpu_link_rate(kind, gpu.arch).gb_per_s;
    const double gb_per_s = static_cast<double>(mb_per_s) / 1000;
    const double most = MachineLimits::links_to_a_neighbour;
    const double count = std::clamp(gb_per_s / one_link + 0.5, 1.0, most);
    return builder_.add_link(gpu.bus_id, kind, end, peer.to_string(), static_cast<int>(count), gb_per_s);
  }

  const HwlocTree& tree_;
  MachineBuilder& builder_;
  std::map<int, int> numa_of_os_index_;
};

}  // namespace

Status add_hwloc_objects(const HwlocTree& tree, MachineBuilder& builder) {
  return HwlocWalk(tree, builder).run();
}

}  // namespace epccl::topology
