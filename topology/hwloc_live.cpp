#include "topology/hwloc_live.hpp"

#include <hwloc.h>

#include <cerrno>
#include <memory>

#include "topology/first_line.hpp"
#include "topology/parse_number.hpp"
#include "topology/pci_ids.hpp"

namespace epccl::topology {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Result<Topology> load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return system_error(errno, "hwloc_topology_init");
  Topology topology(raw);
  // Without it there are no I/O objects. Bridges too: path classes count them.
  if (hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL) != 0)
    return system_error(errno, "hwloc_topology_set_io_types_filter");
  // "pci" is libpciaccess; without it the Linux component reads PCI from sysfs, which needs no privilege nor
  // name tables.
  for (const char* component : {"pci", "cuda", "gl", "levelzero", "nvml", "opencl", "rsmi"})
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  if (hwloc_topology_load(raw) != 0) return system_error(errno, "hwloc cannot read this machine");
  return topology;
}

void set_pci(HwlocObject& object, const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
  object.bus_id = {pci.domain, pci.bus, pci.dev, pci.func};
  object.pci_class = static_cast<uint32_t>(pci.class_id) << 8;
  object.vendor = pci.vendor_id;
  object.device = pci.device_id;
  object.gb_per_s = pci.linkspeed;
}

void set_bridge(HwlocObject& object, const hwloc_obj_attr_u::hwloc_bridge_attr_s& bridge) {
  if (bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
    object.kind = HwlocKind::bridge;
    set_pci(object, bridge.upstream.pci);
    return;
  }
  object.kind = HwlocKind::host_bridge;
  object.pci_class = 0x060000;
  object.bus_id = {bridge.downstream.pci.domain, bridge.downstream.pci.secondary_bus, 0, 0};
}

void set_numa_node(HwlocObject& object, hwloc_obj_t source) {
  object.kind = HwlocKind::numa_node;
  object.os_index = static_cast<int>(source->os_index);
  object.memory_bytes = source->attr->numanode.local_memory;
  for (int cpu = hwloc_bitmap_first(source->cpuset); cpu >= 0 && cpu < max_cpus;
       cpu = hwloc_bitmap_next(source->cpuset, cpu))
    object.cpus.push_back(cpu);
}

HwlocOsDevice os_device_of(hwloc_obj_osdev_type_t type) {
  switch (type) {
    case HWLOC_OBJ_OSDEV_GPU:
      return HwlocOsDevice::gpu;
    case HWLOC_OBJ_OSDEV_NETWORK:
      return HwlocOsDevice::network;
    case HWLOC_OBJ_OSDEV_OPENFABRICS:
      return HwlocOsDevice::openfabrics;
    case HWLOC_OBJ_OSDEV_COPROC:
      return HwlocOsDevice::coprocessor;
    default:
      return HwlocOsDevice::block;
  }
}

HwlocObject convert(hwloc_obj_t source) {
  HwlocObject object;
  if (source->name != nullptr) object.name = source->name;
  if (source->subtype != nullptr) object.subtype = source->subtype;
  for (unsigned i = 0; i < source->infos_count; ++i)
    object.infos.emplace(source->infos[i].name, source->infos[i].value);
  if (source->nodeset != nullptr && hwloc_bitmap_weight(source->nodeset) == 1)
    object.near_numa = hwloc_bitmap_first(source->nodeset);

  if (source->type == HWLOC_OBJ_NUMANODE) set_numa_node(object, source);
  if (source->type == HWLOC_OBJ_BRIDGE) set_bridge(object, source->attr->bridge);
  if (source->type == HWLOC_OBJ_PCI_DEVICE) {
    object.kind = HwlocKind::pci_device;
    set_pci(object, source->attr->pcidev);
  }
  if (source->type == HWLOC_OBJ_OS_DEVICE) {
    object.kind = HwlocKind::os_device;
    object.os_device = os_device_of(source->attr->osdev.type);
  }
  for (const hwloc_obj_t first : {source->memory_first_child, source->first_child, source->io_first_child})
    for (hwloc_obj_t child = first; child != nullptr; child = child->next_sibling)
      object.children.push_back(convert(child));
  return object;
}

/// hwloc takes link rates from config space, of which only root sees enough; sysfs tells everybody.
void complete_link_rates(HwlocObject& object) {
  if ((object.kind == HwlocKind::pci_device || object.kind == HwlocKind::bridge) && object.gb_per_s <= 0) {
    const std::string directory = "/sys/bus/pci/devices/" + object.bus_id.to_string();
    const auto width = parse_integer(first_line(directory + "/current_link_width"), 0, 255);
    const auto rate =
        pcie_gb_per_s(first_line(directory + "/current_link_speed"), static_cast<int>(width.value_or(0)));
    object.gb_per_s = rate.value_or(0);
  }
  for (HwlocObject& child : object.children) complete_link_rates(child);
}

}  // namespace

HwlocTree hwloc_tree(hwloc_topology* topology) {
  return {convert(hwloc_get_root_obj(topology)), {}};
}

Result<HwlocTree> read_hwloc_live() {
  EPCCL_ASSIGN(const Topology topology, load());
  HwlocTree tree = hwloc_tree(topology.get());
  complete_link_rates(tree.root);
  return tree;
}

}  // namespace epccl::topology
