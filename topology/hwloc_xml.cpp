#include "topology/hwloc_xml.hpp"

#include <cctype>
#include <optional>
#include <unordered_map>

#include "topology/parse_number.hpp"
#include "topology/xml_attributes.hpp"

namespace epccl::topology {
namespace {

constexpr int newest_version = 2;
constexpr int64_t max_matrix_devices = 1024;

/// hwloc's sets: "0x00000003,,0xf0000000"; "0xf...f" in front stands for all higher bits, which are left out.
Result<CpuList> set_attribute(const pugi::xml_node& node, const char* name) {
  std::string_view text = node.attribute(name).value();
  bool unbounded = false;
  if (text.starts_with("0xf...f")) {
    text.remove_prefix(std::string_view("0xf...f").size());
    if (text.starts_with(",")) text.remove_prefix(1);
    unbounded = true;
  }
  std::string filled;
  for (const char c : text) {
    if (c == ',' && (filled.empty() || filled.back() == ',')) filled += '0';
    filled += c;
  }
  if (!filled.empty() && filled.back() == ',') filled += '0';
  auto set = parse_cpu_mask(filled);
  if (!set.ok()) return element_error(node, "{}: {}", name, set.status().message());
  if (unbounded && set->empty()) return CpuList{};
  return set;
}

/// "0302 [10de:20b0] [10de:144e] a1": class, vendor and device, those of the subsystem, revision.
bool read_pci_type(std::string_view text, HwlocObject& object) {
  constexpr std::string_view shape = "hhhh [hhhh:hhhh] [hhhh:hhhh] hh";
  if (text.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool hex = std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
    if (shape[i] == 'h' ? !hex : text[i] != shape[i]) return false;
  }
  object.pci_class = static_cast<uint32_t>(*parse_hex(text.substr(0, 4))) << 8;
  object.vendor = static_cast<uint16_t>(*parse_hex(text.substr(6, 4)));
  object.device = static_cast<uint16_t>(*parse_hex(text.substr(11, 4)));
  return true;
}

/// "0000:[2b-3b]": the buses below a bridge; the first of them.
std::optional<BusId> first_bus(std::string_view text) {
  const size_t open = text.find(":["), dash = text.find('-');
  if (open == std::string_view::npos || dash == std::string_view::npos || dash < open) return std::nullopt;
  const auto domain = parse_hex(text.substr(0, open), UINT32_MAX);
  const auto bus = parse_hex(text.substr(open + 2, dash - open - 2), 0xff);
  if (!domain || !bus) return std::nullopt;
  return BusId{static_cast<uint32_t>(*domain), static_cast<uint8_t>(*bus), 0, 0};
}

class HwlocXmlReader {
 public:
  Result<HwlocTree> read(const pugi::xml_node& topology) {
    EPCCL_TRY(check_version(topology));
    const auto machine = topology.child("object");
    if (std::string_view(machine.attribute("type").value()) != "Machine")
      return element_error(topology, "its first <object> is no Machine");
    HwlocTree tree;
    EPCCL_ASSIGN(tree.root, read_object(machine, nullptr));
    if (!has_numa_nodes_) EPCCL_TRY(add_only_numa_node(machine, tree.root));
    for (const auto& node : topology.children()) {
      const std::string_view name = node.name(), what = node.attribute("name").value();
      if (name != "distances2" && name != "distances2hetero") continue;
      if (what == "NVLinkBandwidth") EPCCL_TRY(read_links(node, LinkKind::nvlink, tree));
      if (what == "XGMIBandwidth") EPCCL_TRY(read_links(node, LinkKind::xgmi, tree));
    }
    return tree;
  }

 private:
  static Status check_version(const pugi::xml_node& topology) {
    const std::string_view version = topology.attribute("version").value();
    if (version.empty()) return {};
    const auto major = parse_integer(version.substr(0, version.find('.')), 0, 1000);
    if (!major) return element_error(topology, "version=\"{:.40}\" is no version", version);
    if (*major <= newest_version) return {};
    return element_error(topology,
                         "hwloc XML of version {:.40}; versions up to {} can be read (lstopo writes one with "
                         "--export-xml-flags v2)",
                         version, newest_version);
  }

  /// `pci` is the PCI device the object is on, null when it is on none.
  Result<HwlocObject> read_object(const pugi::xml_node& node, const BusId* pci) {
    HwlocObject object;
    EPCCL_ASSIGN(const std::string_view type, required_attribute(node, "type"));
    object.name = node.attribute("name").value();
    object.subtype = node.attribute("subtype").value();
    if (type == "NUMANode" || type == "Node") {
      EPCCL_TRY(read_numa_node(node, object));
    } else if (type == "Bridge") {
      EPCCL_TRY(read_bridge(node, object));
    } else if (type == "PCIDev") {
      object.kind = HwlocKind::pci_device;
      EPCCL_TRY(read_pci(node, object));
      pci = &object.bus_id;
    } else if (type == "OSDev") {
      object.kind = HwlocKind::os_device;
      EPCCL_ASSIGN(const int64_t os_device, integer_attribute(node, "osdev_type", 0, 0, 5));
      object.os_device = static_cast<HwlocOsDevice>(os_device);
    }
    EPCCL_TRY(read_nodeset(node, object));
    EPCCL_TRY(remember(node, pci));
    for (const auto& info : node.children("info"))
      object.infos.emplace(info.attribute("name").value(), info.attribute("value").value());
    for (const auto& child : node.children("object")) {
      EPCCL_ASSIGN(HwlocObject read, read_object(child, pci));
      object.children.push_back(std::move(read));
    }
    return object;
  }

  Status read_numa_node(const pugi::xml_node& node, HwlocObject& object) {
    object.kind = HwlocKind::numa_node;
    has_numa_nodes_ = true;
    EPCCL_TRY(required_attribute(node, "os_index").status());
    EPCCL_ASSIGN(const int64_t os_index, integer_attribute(node, "os_index", 0, 0, max_cpus));
    EPCCL_ASSIGN(const int64_t memory, integer_attribute(node, "local_memory", 0, 0, INT64_MAX));
    EPCCL_ASSIGN(object.cpus, set_attribute(node, "cpuset"));
    object.os_index = static_cast<int>(os_index);
    object.memory_bytes = static_cast<uint64_t>(memory);
    return {};
  }

  static Status read_nodeset(const pugi::xml_node& node, HwlocObject& object) {
    EPCCL_ASSIGN(const CpuList nodes, set_attribute(node, "nodeset"));
    if (nodes.size() == 1) object.near_numa = nodes.front();
    return {};
  }

  /// Version 1 leaves out the node of a machine that has only one.
  Status add_only_numa_node(const pugi::xml_node& machine, HwlocObject& root) {
    HwlocObject node;
    node.kind = HwlocKind::numa_node;
    node.os_index = 0;
    EPCCL_ASSIGN(node.cpus, set_attribute(machine, "cpuset"));
    EPCCL_ASSIGN(const int64_t memory, integer_attribute(machine, "local_memory", 0, 0, INT64_MAX));
    node.memory_bytes = static_cast<uint64_t>(memory);
    root.children.push_back(std::move(node));
    return {};
  }

  static Status read_bridge(const pugi::xml_node& node, HwlocObject& object) {
    const std::string_view kind = node.attribute("bridge_type").value();
    if (kind == "1-1") {
      object.kind = HwlocKind::bridge;
      return read_pci(node, object);
    }
    if (kind != "0-1") return element_error(node, "bridge_type=\"{:.40}\" is neither 0-1 nor 1-1", kind);
    object.kind = HwlocKind::host_bridge;
    object.pci_class = 0x060000;
    const char* buses = node.attribute("bridge_pci").value();
    const auto first = first_bus(buses);
    if (!first) return element_error(node, "bridge_pci=\"{:.40}\" is no range of buses", buses);
    object.bus_id = *first;
    return {};
  }

  static Status read_pci(const pugi::xml_node& node, HwlocObject& object) {
    EPCCL_ASSIGN(object.bus_id, bus_id_attribute(node, "pci_busid"));
    EPCCL_ASSIGN(const std::string_view type, required_attribute(node, "pci_type"));
    if (!read_pci_type(type, object))
      return element_error(node, "pci_type=\"{:.40}\" has the wrong form", type);
    const auto speed = node.attribute("pci_link_speed");
    const auto gb_per_s = parse_fraction(speed.as_string("0"));
    if (!gb_per_s) return element_error(node, "pci_link_speed=\"{:.40}\" is no rate", speed.value());
    object.gb_per_s = *gb_per_s;
    return {};
  }

  /// Matrices name objects by gp_index.
  Status remember(const pugi::xml_node& node, const BusId* pci) {
    EPCCL_ASSIGN(const int64_t gp_index, integer_attribute(node, "gp_index", -1, 0, INT64_MAX));
    if (gp_index < 0) return {};
    const auto device = pci == nullptr ? std::nullopt : std::optional(*pci);
    if (!pci_of_gp_index_.try_emplace(gp_index, device).second)
      return element_error(node, "gp_index {} appears twice", gp_index);
    return {};
  }

  Status read_links(const pugi::xml_node& node, LinkKind kind, HwlocTree& tree) {
    EPCCL_TRY(required_attribute(node, "nbobjs").status());
    EPCCL_ASSIGN(const int64_t count, integer_attribute(node, "nbobjs", 0, 1, max_matrix_devices));
    HwlocLinks links;
    links.kind = kind;
    const auto add_device = [&](std::string_view word) -> Status {
      const std::string_view number =
          word.substr(word.find(':') + 1);  // "OSDev:802", or "802" when all are alike
      const auto gp_index = parse_integer(number, 0, INT64_MAX);
      const auto found = gp_index ? pci_of_gp_index_.find(*gp_index) : pci_of_gp_index_.end();
      if (found == pci_of_gp_index_.end() || !found->second)
        return element_error(node, "\"{:.40}\" is no device of this file", word);
      links.devices.push_back(*found->second);
      return {};
    };
    const auto add_value = [&](std::string_view word) -> Status {
      const auto value = parse_integer(word, 0, INT64_MAX);
      if (!value) return element_error(node, "\"{:.40}\" is no bandwidth", word);
      links.mb_per_s.push_back(static_cast<uint64_t>(*value));
      return {};
    };
    EPCCL_TRY(for_each_word(node, "indexes", add_device));
    EPCCL_TRY(for_each_word(node, "u64values", add_value));
    const auto devices = static_cast<size_t>(count);
    if (links.devices.size() != devices || links.mb_per_s.size() != devices * devices)
      return element_error(node, "{} devices and {} values, where nbobjs says {} and {}",
                           links.devices.size(), links.mb_per_s.size(), devices, devices * devices);
    tree.links.push_back(std::move(links));
    return {};
  }

  /// Calls `take` for each word in the texts of the children of one name.
  template <typename Take>
  static Status for_each_word(const pugi::xml_node& node, const char* child_name, const Take& take) {
    constexpr std::string_view space = " \t\r\n";
    for (const auto& child : node.children(child_name)) {
      std::string_view text = child.child_value();
      for (size_t start = text.find_first_not_of(space); start != std::string_view::npos;
           start = text.find_first_not_of(space)) {
        text.remove_prefix(start);
        const std::string_view word = text.substr(0, text.find_first_of(space));
        EPCCL_TRY(take(word));
        text.remove_prefix(word.size());
      }
    }
    return {};
  }

  bool has_numa_nodes_ = false;
  std::unordered_map<int64_t, std::optional<BusId>> pci_of_gp_index_;
};

}  // namespace

Result<HwlocTree> read_hwloc_xml(const pugi::xml_node& topology) {
  return HwlocXmlReader().read(topology);
}

}  // namespace epccl::topology
