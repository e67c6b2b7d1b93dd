// Typed reading of XML attributes, with errors that say which element and what it holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "topology/bus_id.hpp"

#include <pugixml.hpp>

namespace epccl::topology {

/// Error that names the element: "<pci> at byte 123: ...".
template <typename... Args>
Status element_error(const pugi::xml_node& node, fmt::format_string<Args...> format, Args&&... args) {
  return error(Code::invalid_argument, "<{}> at byte {}: {}", node.name(), node.offset_debug(),
               fmt::format(format, std::forward<Args>(args)...));
}

/// The attribute's text, error when there is none.
Result<std::string_view> required_attribute(const pugi::xml_node& node, const char* name);
/// The attribute as a number, `fallback` when there is none, error when it is no number or out of range.
Result<int64_t> integer_attribute(const pugi::xml_node& node, const char* name, int64_t fallback,
                                  int64_t minimum, int64_t maximum);
Result<uint64_t> hex_attribute(const pugi::xml_node& node, const char* name, uint64_t fallback,
                               uint64_t maximum);
/// The attribute as a bus id, error when there is none or it is none.
Result<BusId> bus_id_attribute(const pugi::xml_node& node, const char* name);

}  // namespace epccl::topology
