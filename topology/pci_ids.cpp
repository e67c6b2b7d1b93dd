#include "topology/pci_ids.hpp"

#include <algorithm>
#include <iterator>
#include <span>

#include "topology/parse_number.hpp"

namespace epccl::topology {
namespace {

constexpr GpuModel models[] = {
    {vendor_nvidia, 0x1db1, "Tesla V100-SXM2-16GB", "sm_70"},
    {vendor_nvidia, 0x1db5, "Tesla V100-SXM2-32GB", "sm_70"},
    {vendor_nvidia, 0x1db8, "Tesla V100-SXM3-32GB", "sm_70"},
    {vendor_nvidia, 0x20b0, "A100-SXM4-40GB", "sm_80"},
    {vendor_nvidia, 0x20b2, "A100-SXM4-80GB", "sm_80"},
    {vendor_nvidia, 0x2330, "H100-SXM5-80GB", "sm_90"},
    {vendor_nvidia, 0x2335, "H200-SXM5-141GB", "sm_90"},
    {vendor_nvidia, 0x2901, "B200", "sm_100"},
    {vendor_amd, 0x66a1, "Instinct MI50/MI60 (Vega 20)", "gfx906"},
    {vendor_amd, 0x738c, "Instinct MI100", "gfx908"},
    {vendor_amd, 0x7408, "Instinct MI250X", "gfx90a"},
    {vendor_amd, 0x74a1, "Instinct MI300X", "gfx942"},
};

struct LinkRate {
  std::string_view arch;
  double gb_per_s;
};
// Ascending by number.
constexpr LinkRate nvlink_rates[] = {{"sm_60", 20}, {"sm_70", 25},  {"sm_80", 25}, {"sm_86", 14},
                                     {"sm_90", 25}, {"sm_100", 50}, {"sm_103", 50}};
constexpr LinkRate xgmi_rates[] = {{"gfx906", 46}, {"gfx908", 46}, {"gfx90a", 50}, {"gfx942", 64}};
constexpr double most_nvlinks = 25, most_xgmi = 50;

/// "sm_90" -> 90, "gfx90a" -> 0x90a; empty for what is no architecture.
std::optional<uint64_t> number_of(std::string_view arch) {
  if (arch.starts_with("gfx")) return parse_hex(arch.substr(3), UINT32_MAX);
  if (!arch.starts_with("sm_")) return std::nullopt;
  const auto number = parse_integer(arch.substr(3), 0, UINT32_MAX);
  return number ? std::optional(static_cast<uint64_t>(*number)) : std::nullopt;
}

}  // namespace

bool is_gpu_class(uint32_t pci_class, uint16_t vendor) {
  const uint32_t subclass = pci_class >> 8;
  if (subclass == 0x1200) return vendor == vendor_amd;
  return (subclass == 0x0302 || subclass == 0x0380) && vendor != vendor_virtio;
}

Vendor gpu_vendor(uint16_t vendor) {
  if (vendor == vendor_nvidia) return Vendor::nvidia;
  if (vendor == vendor_amd) return Vendor::amd;
  return vendor == vendor_intel ? Vendor::intel : Vendor::unknown;
}

NicKind nic_kind(uint32_t pci_class, uint16_t vendor, uint16_t device) {
  if (vendor == vendor_amazon && (device & 0xfff0) == 0xefa0) return NicKind::efa;
  if (pci_class >> 8 == 0x0207) return NicKind::infiniband;
  return pci_class >> 8 == 0x0200 ? NicKind::ethernet : NicKind::unknown;
}

const GpuModel* find_gpu_model(uint16_t vendor, uint16_t device) {
  const auto* found = std::find_if(std::begin(models), std::end(models), [&](const GpuModel& model) {
    return model.vendor == vendor && model.device == device;
  });
  return found == std::end(models) ? nullptr : found;
}

std::optional<double> pcie_gb_per_s(std::string_view speed, int width) {
  if (speed.empty() || speed.starts_with("Unknown")) return 0;
  const size_t space = speed.find(' ');
  if (space == std::string_view::npos || !speed.substr(space + 1).starts_with("GT/s")) return std::nullopt;
  const auto gigatransfers = parse_fraction(speed.substr(0, space));
  if (!gigatransfers || *gigatransfers > 1000) return std::nullopt;
  constexpr int no_width = 64;  // the kernel says 255 for a link whose width it does not know
  if (width < 0 || width > no_width) return 0;
  const double encoding = *gigatransfers < 8 ? 8.0 / 10 : 128.0 / 130;
  return *gigatransfers * width * encoding / 8;
}

GpuLinkRate gpu_link_rate(LinkKind kind, std::string_view arch) {
  const bool nvlink = kind == LinkKind::nvlink;
  const std::span<const LinkRate> rates =
      nvlink ? std::span<const LinkRate>(nvlink_rates) : std::span<const LinkRate>(xgmi_rates);
  GpuLinkRate result{nvlink ? most_nvlinks : most_xgmi, false, ""};
  const auto number = number_of(arch);
  if (!number || arch.starts_with("sm_") != nvlink) return result;
  for (const LinkRate& rate : rates)
    if (*number_of(rate.arch) <= *number) result = {rate.gb_per_s, rate.arch == arch, rate.arch};
  return result;
}

}  // namespace epccl::topology
