#include "topology/bus_id.hpp"

#include <fmt/format.h>

#include "topology/parse_number.hpp"

namespace epccl::topology {

std::string BusId::to_string() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

std::optional<BusId> BusId::parse(std::string_view text) {
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto function = parse_hex(text.substr(dot + 1), 7);
  text = text.substr(0, dot);

  const size_t last_colon = text.rfind(':');
  if (last_colon == std::string_view::npos) return std::nullopt;
  const auto device = parse_hex(text.substr(last_colon + 1), 0x1f);
  text = text.substr(0, last_colon);

  std::optional<uint64_t> domain = 0;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    domain = parse_hex(text.substr(0, colon), UINT32_MAX);
    text = text.substr(colon + 1);
  }
  const auto bus = parse_hex(text, 0xff);
  if (!domain || !bus || !device || !function) return std::nullopt;
  return BusId{static_cast<uint32_t>(*domain), static_cast<uint8_t>(*bus), static_cast<uint8_t>(*device),
               static_cast<uint8_t>(*function)};
}

}  // namespace epccl::topology
