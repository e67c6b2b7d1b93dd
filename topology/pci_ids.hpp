// What PCI classes, vendors and devices mean here, and what links carry.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "topology/machine.hpp"

namespace epccl::topology {

inline constexpr uint16_t vendor_nvidia = 0x10de;
inline constexpr uint16_t vendor_amd = 0x1002;
inline constexpr uint16_t vendor_intel = 0x8086;
inline constexpr uint16_t vendor_amazon = 0x1d0f;
inline constexpr uint16_t vendor_virtio = 0x1af4;

inline bool is_bridge_class(uint32_t pci_class) {
  return pci_class >> 8 == 0x0604;
}
/// "Bridge, other": NVSwitches, when the vendor is NVIDIA's.
inline bool is_gpu_switch_class(uint32_t pci_class) {
  return pci_class >> 8 == 0x0680;
}
inline bool is_network_class(uint32_t pci_class) {
  return pci_class >> 16 == 0x02;
}

/// True for what computes by its class alone: 3D controllers, display controllers that drive no screen, and
/// AMD's processing accelerators. A VGA controller (0x0300) may be a GPU or a server's console: the class
/// does not tell.
bool is_gpu_class(uint32_t pci_class, uint16_t vendor);

Vendor gpu_vendor(uint16_t vendor);
NicKind nic_kind(uint32_t pci_class, uint16_t vendor, uint16_t device);

struct GpuModel {
  uint16_t vendor, device;
  const char* model;
  const char* arch;
};
/// Data-centre GPUs that files name by device id only; nullptr for others.
const GpuModel* find_gpu_model(uint16_t vendor, uint16_t device);

/// GB/s of a PCIe link, from the kernel's wording: ("16.0 GT/s PCIe", 16) -> 31.5. 0 for "Unknown" and an
/// empty text; empty optional when the text is no speed.
std::optional<double> pcie_gb_per_s(std::string_view speed, int width);

/// Nominal GB/s of one link between GPUs.
struct GpuLinkRate {
  double gb_per_s = 0;
  bool known = true;  // of this architecture itself
  std::string_view
      like;  // else the architecture whose rate is taken: the newest known that is not newer; "" = most have this
};
/// Of one NVLink of an architecture ("sm_90"), or one xGMI link ("gfx90a"). Never 0.
GpuLinkRate gpu_link_rate(LinkKind kind, std::string_view arch);

}  // namespace epccl::topology
