// One machine as plain data: memory nodes, the PCI tree, GPUs, NICs, and the links between GPUs.
//
// Made by a reader (read_machine.hpp) or by live discovery (discover_machine.hpp), always through
// MachineBuilder, which puts lists in order and resolves who refers to whom. All references are positions in
// the vectors here; -1 means unknown or none. Rates are nominal and in one direction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/bus_id.hpp"
#include "topology/cpu_list.hpp"

namespace epccl::topology {

struct NumaNode {
  int os_index = -1;  // as the kernel numbers it; -1 where a machine has no NUMA information
  CpuList cpus;
  uint64_t memory_bytes = 0;  // 0 = unknown
};

enum class PciKind : uint8_t {
  host_bridge,  // a root complex; its bus id is the first of its buses
  port,         // a root port, or a switch's downstream port
  pci_switch,   // a switch (or its upstream port): what a path counts as one bridge
  endpoint,
};

struct PciDevice {
  BusId bus_id;
  PciKind kind = PciKind::endpoint;
  uint32_t pci_class = 0;  // class, subclass, programming interface: 0x030200
  uint16_t vendor = 0;
  uint16_t device = 0;
  double gb_per_s = 0;  // of the link upwards; 0 = unknown
  int parent = -1;      // into pci_devices
  int numa = -1;        // into numa_nodes
};

enum class Vendor : uint8_t { unknown, nvidia, amd, intel };

struct Gpu {
  int index = 0;  // as driver or file number it: usually, not always, the position
  BusId bus_id;
  Vendor vendor = Vendor::unknown;
  std::string model;  // "H100 SXM5 80GB"; "" = unknown
  std::string arch;   // "sm_90", "gfx90a"; "" = unknown
  int pci = -1;       // into pci_devices; -1 where PCI is not visible
  int numa = -1;
};

enum class NicKind : uint8_t { unknown, ethernet, infiniband, efa };

/// One port of a network device.
struct Nic {
  std::string name;         // rdma_device, else interface, else the bus id
  std::string interface;    // "eth0"; "" = none known
  std::string rdma_device;  // "mlx5_0"; "" = none known
  NicKind kind = NicKind::unknown;
  std::optional<BusId> bus_id;
  int port = 0;            // from 1; 0 = unknown
  uint64_t guid = 0;       // 0 = unknown
  int64_t speed_mbit = 0;  // 0 = unknown
  bool up = true;          // link state; true where unknown
  int pci = -1;
  int numa = -1;
};

/// An NVSwitch. GPUs that have links to any switch reach each other: switches are one fabric.
struct GpuSwitch {
  std::string id;  // bus id; or what the file calls it
  int pci = -1;
};

enum class LinkKind : uint8_t { nvlink, xgmi };
enum class LinkEnd : uint8_t { gpu, gpu_switch, cpu };

/// Links from one GPU to one neighbour. Links between two GPUs appear once from each side.
struct GpuLink {
  LinkKind kind = LinkKind::nvlink;
  int gpu = -1;  // into gpus
  LinkEnd end = LinkEnd::gpu;
  int peer = -1;  // into gpus or switches; -1 for a CPU
  int count = 1;
  double gb_per_s = 0;   // of all `count` links; 0 = unknown
  bool guessed = false;  // that rate is another architecture's: this one's is not known
};

struct Machine {
  std::string name;                    // product or host; "" = unknown
  std::string source;                  // "live", or which file in which format
  std::vector<NumaNode> numa_nodes;    // by os_index
  std::vector<PciDevice> pci_devices;  // parents before children
  std::vector<Gpu> gpus;               // by index
  std::vector<Nic> nics;               // as the file numbers them, else by bus id and port
  std::vector<GpuSwitch> switches;     // by id
  std::vector<GpuLink> links;          // by gpu, end, peer
  std::vector<std::string> notes;      // what was left out, and why
};

const char* to_string(Vendor vendor);
const char* to_string(NicKind kind);
const char* to_string(LinkKind kind);

}  // namespace epccl::topology
