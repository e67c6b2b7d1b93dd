// How close two devices of a machine are, and which NIC each GPU should use.
#pragma once

#include <vector>

#include "topology/machine.hpp"

namespace epccl::topology {

/// What `nvidia-smi topo -m` and NCCL call them, closest first.
enum class PathClass : uint8_t {
  loc,   // the same device
  nvl,   // GPUs with a direct NVLink or xGMI link, or on one NVSwitch fabric
  pix,   // at most one PCIe switch
  pxb,   // several PCIe switches, without the CPU
  phb,   // through the CPU's host bridge
  node,  // between host bridges of one NUMA node
  sys,   // between NUMA nodes
};
const char* to_string(PathClass path);

/// Links between two GPUs: direct ones, or what the one with fewer has into the switch fabric.
struct GpuConnection {
  LinkKind kind = LinkKind::nvlink;
  int count = 0;  // 0 = none
  bool switched = false;
  double gb_per_s = 0;  // 0 = unknown
};
GpuConnection connection(const Machine& machine, int gpu_a, int gpu_b);

/// Between two devices of the PCI tree. `pci_*` may be -1 (not visible); the NUMA nodes are then what is
/// compared.
PathClass pci_path(const Machine& machine, int pci_a, int numa_a, int pci_b, int numa_b);
PathClass gpu_path(const Machine& machine, int gpu_a, int gpu_b);
PathClass gpu_nic_path(const Machine& machine, int gpu, int nic);
PathClass nic_path(const Machine& machine, int nic_a, int nic_b);

/// PCI devices whose links upwards are crossed between two devices; all up to the roots where these differ, none for -1.
std::vector<int> pci_links(const Machine& machine, int pci_a, int pci_b);
/// The same between a device and its CPU: all below the host bridge, none for -1.
std::vector<int> pci_links_to_cpu(const Machine& machine, int pci);

/// GB/s a NIC can carry, as far as known: its own rate or its PCIe link's, whichever is less. 0 = unknown.
double nic_gb_per_s(const Machine& machine, int nic);

/// NICs that are equally good for this GPU, in position order: of the closest path class, and of those the
/// fastest. Not considered while others exist: NICs that are down, and those with less than a tenth of the
/// fastest NIC's rate (a management port next to the GPU is no match for a fabric port further away). Empty
/// when the machine has no NIC.
std::vector<int> nearest_nics(const Machine& machine, int gpu);

/// NICs with which a rank without a GPU could start: of those worth considering, see nearest_nics(), the fastest.
std::vector<int> fastest_nics(const Machine& machine);

/// Deals `nics` out to `users`, each user's in the order of its stripes. As many as users, or fewer: they take turns at
/// one each. More: as many each as go round, neighbours together, and what is left over is everybody's, so that no
/// user has less than another. Empty lists where there are no NICs.
std::vector<std::vector<int>> deal_nics(const std::vector<int>& nics, size_t users);

/// The NICs of each of these GPUs (positions, no GPU twice): GPUs with the same nearest NICs have them dealt out. The same
/// on every rank.
std::vector<std::vector<int>> share_nics(const Machine& machine, const std::vector<int>& gpus);

/// One NIC per GPU, -1 without NICs: the first that share_nics() gives it when all GPUs are used, so that two GPUs on a
/// switch with two NICs use both.
std::vector<int> assign_nics(const Machine& machine);

/// What a rank at a local position uses.
struct LocalPlace {
  int gpu = -1;  // -1: none
  std::vector<int> nics;

  int nic() const { return nics.empty() ? -1 : nics.front(); }
};

/// Local position l takes GPU l; more ranks than GPUs share them in turn. On a machine without GPUs ranks
/// have the fastest NICs dealt out.
std::vector<LocalPlace> place_ranks(const Machine& machine, int ranks);

}  // namespace epccl::topology
