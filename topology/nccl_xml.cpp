#include "topology/nccl_xml.hpp"

#include <string>

#include "topology/machine_builder.hpp"
#include "topology/parse_number.hpp"
#include "topology/pci_ids.hpp"
#include "topology/xml_attributes.hpp"

namespace epccl::topology {
namespace {

constexpr int64_t max_index = 1'000'000;
constexpr int64_t max_speed_mbit = 1'000'000'000;

/// RCCL writes the architecture as a name, or as a number with 910 for gfx90a.
std::string gfx_name(const std::string& gcn) {
  if (gcn.starts_with("gfx")) return gcn;
  return gcn == "910" ? "gfx90a" : "gfx" + gcn;
}

class NcclReader {
 public:
  explicit NcclReader(const pugi::xml_node& system) : system_(system) {
    // Where the file lists GPUs, devices it does not list as such are not visible to the job.
    has_gpu_elements_ =
        system.find_node([](const pugi::xml_node& node) { return std::string_view(node.name()) == "gpu"; });
  }

  Result<Machine> read() && {
    EPCCL_TRY(check_one_host());
    for (const auto& cpu : system_.children("cpu")) EPCCL_TRY(read_cpu(cpu));
    if (builder_.so_far().numa_nodes.empty()) return element_error(system_, "no <cpu> in it");
    return std::move(builder_).build();
  }

 private:
  Status check_one_host() const {
    std::string_view first;
    for (const auto& cpu : system_.children("cpu")) {
      const std::string_view host = cpu.attribute("host_hash").value();
      if (!first.empty() && !host.empty() && host != first)
        return element_error(cpu, "the file describes several hosts ({:.40}, {:.40})", first, host);
      if (first.empty()) first = host;
    }
    return {};
  }

  Status read_cpu(const pugi::xml_node& cpu) {
    EPCCL_TRY(required_attribute(cpu, "numaid").status());
    NumaNode node;
    EPCCL_ASSIGN(const int64_t numa_id, integer_attribute(cpu, "numaid", -1, -1, max_index));
    node.os_index = static_cast<int>(numa_id);
    auto cpus = parse_cpu_mask(cpu.attribute("affinity").value());
    if (!cpus.ok()) return element_error(cpu, "affinity: {}", cpus.status().message());
    node.cpus = std::move(cpus).value();
    auto numa = builder_.add_numa_node(std::move(node));
    if (!numa.ok()) return element_error(cpu, "{}", numa.status().message());

    // The format has no host bridges: devices under one <cpu> meet at it.
    PciDevice root;
    root.kind = PciKind::host_bridge;
    root.pci_class = 0x060000;
    root.numa = *numa;
    if (const auto first = BusId::parse(cpu.child("pci").attribute("busid").value()))
      root.bus_id = {first->domain, first->bus, 0, 0};
    EPCCL_ASSIGN(const int root_position, builder_.add_pci_device(root));
    return read_children(cpu, root_position, *numa);
  }

  Status read_children(const pugi::xml_node& parent, int parent_position, int numa) {
    for (const auto& child : parent.children("pci")) EPCCL_TRY(read_pci(child, parent_position, numa));
    // Network devices that are not on PCI stand directly under the <cpu>.
    if (std::string_view(parent.name()) == "cpu")
      for (const auto& nic : parent.children("nic"))
        for (const auto& net : nic.children("net")) EPCCL_TRY(read_net(net, -1, numa));
    return {};
  }

  Status read_pci(const pugi::xml_node& node, int parent, int numa) {
    PciDevice device;
    device.parent = parent;
    device.numa = numa;
    EPCCL_ASSIGN(device.bus_id, bus_id_attribute(node, "busid"));
    EPCCL_TRY(required_attribute(node, "class").status());
    EPCCL_ASSIGN(const uint64_t pci_class, hex_attribute(node, "class", 0, 0xffffff));
    EPCCL_ASSIGN(const uint64_t vendor, hex_attribute(node, "vendor", 0, 0xffff));
    EPCCL_ASSIGN(const uint64_t device_id, hex_attribute(node, "device", 0, 0xffff));
    EPCCL_ASSIGN(const int64_t width, integer_attribute(node, "link_width", -1, -1, 255));
    const char* speed = node.attribute("link_speed").value();
    const auto rate = pcie_gb_per_s(speed, static_cast<int>(width));
    if (!rate) return element_error(node, "link_speed=\"{:.40}\" is no PCIe speed", speed);
    device.pci_class = static_cast<uint32_t>(pci_class);
    device.vendor = static_cast<uint16_t>(vendor);
    device.device = static_cast<uint16_t>(device_id);
    device.gb_per_s = *rate;
    device.kind = is_bridge_class(device.pci_class) ? PciKind::pci_switch : PciKind::endpoint;
    auto position = builder_.add_pci_device(device);
    if (!position.ok()) return element_error(node, "{}", position.status().message());

    EPCCL_TRY(read_functions(node, device, *position));
    return read_children(node, *position, numa);
  }

  /// What the PCI device is: a GPU, ports of a NIC.
  Status read_functions(const pugi::xml_node& node, const PciDevice& device, int position) {
    if (const auto gpu = node.child("gpu")) {
      EPCCL_TRY(read_gpu(gpu, device, position));
    } else if (!has_gpu_elements_ && is_gpu_class(device.pci_class, device.vendor)) {
      EPCCL_TRY(builder_.add_gpu(gpu_at(device, position), {}));
    }
    bool has_nets = false;
    for (const auto& nic : node.children("nic")) {
      for (const auto& net : nic.children("net")) {
        EPCCL_TRY(read_net(net, position, device.numa));
        has_nets = true;
      }
    }
    if (has_nets || !is_network_class(device.pci_class)) return {};
    Nic nic;
    nic.pci = position;
    return builder_.add_nic(std::move(nic));
  }

  static Gpu gpu_at(const PciDevice& device, int position) {
    Gpu gpu;
    gpu.bus_id = device.bus_id;
    gpu.pci = position;
    return gpu;
  }

  Status read_gpu(const pugi::xml_node& node, const PciDevice& device, int position) {
    Gpu gpu = gpu_at(device, position);
    EPCCL_ASSIGN(const int64_t index, integer_attribute(node, "dev", -1, 0, max_index));
    EPCCL_ASSIGN(const int64_t sm, integer_attribute(node, "sm", 0, 0, max_index));
    if (const auto gcn = node.attribute("gcn")) {
      gpu.vendor = Vendor::amd;
      gpu.arch = gfx_name(std::string(gcn.value()).substr(0, 16));
    } else if (sm > 0) {
      gpu.vendor = Vendor::nvidia;
      gpu.arch = fmt::format("sm_{}", sm);
    }
    EPCCL_TRY(
        builder_.add_gpu(std::move(gpu), index < 0 ? std::nullopt : std::optional(static_cast<int>(index)))
            .with_context(fmt::format("<gpu> at byte {}", node.offset_debug())));
    for (const auto& link : node.children("nvlink"))
      EPCCL_TRY(read_link(link, device.bus_id, LinkKind::nvlink));
    for (const auto& link : node.children("xgmi")) EPCCL_TRY(read_link(link, device.bus_id, LinkKind::xgmi));
    return {};
  }

  Status read_link(const pugi::xml_node& node, const BusId& gpu, LinkKind kind) {
    EPCCL_ASSIGN(const std::string_view target, required_attribute(node, "target"));
    EPCCL_ASSIGN(const int64_t count,
                 integer_attribute(node, "count", 1, 1, MachineLimits::links_to_a_neighbour));
    EPCCL_ASSIGN(const uint64_t target_class, hex_attribute(node, "tclass", 0x030200, 0xffffff));
    LinkEnd end = LinkEnd::gpu;
    if (target_class == 0x068001) {
      end = LinkEnd::cpu;  // POWER's bridges to the CPU have the switches' class and interface 1
    } else if (is_gpu_switch_class(static_cast<uint32_t>(target_class))) {
      end = LinkEnd::gpu_switch;
    }
    const auto id = BusId::parse(target);
    const std::string name = id ? id->to_string() : std::string(target.substr(0, 40));
    return builder_.add_link(gpu, kind, end, name, static_cast<int>(count))
        .with_context(fmt::format("<{}> at byte {}", node.name(), node.offset_debug()));
  }

  Status read_net(const pugi::xml_node& node, int pci, int numa) {
    Nic nic;
    nic.pci = pci;
    nic.numa = numa;
    EPCCL_ASSIGN(const std::string_view name, required_attribute(node, "name"));
    EPCCL_ASSIGN(const int64_t order, integer_attribute(node, "dev", max_index, 0, max_index));
    EPCCL_ASSIGN(nic.speed_mbit, integer_attribute(node, "speed", 0, -1, max_speed_mbit));
    EPCCL_ASSIGN(const int64_t port, integer_attribute(node, "port", 0, 0, max_index));
    EPCCL_ASSIGN(nic.guid, hex_attribute(node, "guid", 0, UINT64_MAX));
    nic.port = static_cast<int>(port);
    nic.speed_mbit = std::max<int64_t>(nic.speed_mbit, 0);
    nic.name = std::string(name.substr(0, 64));
    // The socket network has no GUIDs: with one it is an RDMA device.
    (nic.guid != 0 ? nic.rdma_device : nic.interface) = nic.name;
    return builder_.add_nic(std::move(nic), static_cast<int>(order));
  }

  pugi::xml_node system_;
  bool has_gpu_elements_ = false;
  MachineBuilder builder_;
};

}  // namespace

Result<Machine> machine_from_nccl_xml(const pugi::xml_node& system) {
  return NcclReader(system).read();
}

}  // namespace epccl::topology
