// hwloc's object tree as plain data, as far as it matters here: what a recorded file and the live library
// have in common.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "topology/bus_id.hpp"
#include "topology/cpu_list.hpp"
#include "topology/machine.hpp"

namespace epccl::topology {

enum class HwlocKind : uint8_t { other, numa_node, host_bridge, bridge, pci_device, os_device };

/// Numbered as in hwloc XML of versions 1 and 2.
enum class HwlocOsDevice : uint8_t {
  block = 0,
  gpu = 1,
  network = 2,
  openfabrics = 3,
  dma = 4,
  coprocessor = 5
};

struct HwlocObject {
  HwlocKind kind = HwlocKind::other;
  std::string name, subtype;                 // "mlx5_0", "NVSwitch"
  std::map<std::string, std::string> infos;  // of OS devices and of the root

  /// The one NUMA node beside the object, by the kernel's number; -1 when there are several. Not of I/O
  /// objects: theirs is that of the nearest other object above.
  int near_numa = -1;

  int os_index = -1;          // NUMA nodes
  uint64_t memory_bytes = 0;  // NUMA nodes
  CpuList cpus;               // NUMA nodes

  BusId bus_id;            // bridges, PCI devices; host bridges: the first of their buses
  uint32_t pci_class = 0;  // as PciDevice::pci_class
  uint16_t vendor = 0, device = 0;
  double gb_per_s = 0;

  HwlocOsDevice os_device = HwlocOsDevice::block;  // OS devices
  std::vector<HwlocObject> children;
};

/// Bandwidth between GPUs, and between GPUs and switches; devices stand for the PCI device they are on.
struct HwlocLinks {
  LinkKind kind = LinkKind::nvlink;
  std::vector<BusId> devices;
  std::vector<uint64_t> mb_per_s;  // devices x devices, row = from
};

struct HwlocTree {
  HwlocObject root;
  std::vector<HwlocLinks> links;
};

}  // namespace epccl::topology
