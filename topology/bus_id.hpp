// A PCI bus id: domain:bus:device.function, in the forms that kernels, drivers and recorded files write it.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace epccl::topology {

/// Ordered as `lspci` lists devices, which is also the order drivers number GPUs in by default.
struct BusId {
  uint32_t domain = 0;
  uint8_t bus = 0;
  uint8_t device = 0;    // 0..31
  uint8_t function = 0;  // 0..7

  friend auto operator<=>(const BusId&, const BusId&) = default;

  /// "0000:3b:00.0"; the domain takes more digits where it needs them.
  std::string to_string() const;

  /// Reads "3b:00.0", "0000:3b:00.0" and NVML's "00000000:3B:00.0". Empty when the text is anything else.
  static std::optional<BusId> parse(std::string_view text);
};

}  // namespace epccl::topology

template <>
struct std::hash<epccl::topology::BusId> {
  size_t operator()(const epccl::topology::BusId& id) const noexcept {
    const uint64_t low =
        static_cast<uint64_t>(id.bus) << 8 | static_cast<uint64_t>(id.device) << 3 | id.function;
    return std::hash<uint64_t>{}(static_cast<uint64_t>(id.domain) << 16 | low);
  }
};
