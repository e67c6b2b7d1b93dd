#include "topology/xml_attributes.hpp"

#include "topology/parse_number.hpp"

namespace epccl::topology {

Result<std::string_view> required_attribute(const pugi::xml_node& node, const char* name) {
  const auto attribute = node.attribute(name);
  if (!attribute) return element_error(node, "no attribute \"{}\"", name);
  return std::string_view(attribute.value());
}

Result<int64_t> integer_attribute(const pugi::xml_node& node, const char* name, int64_t fallback,
                                  int64_t minimum, int64_t maximum) {
  const auto attribute = node.attribute(name);
  if (!attribute) return fallback;
  const auto value = parse_integer(attribute.value(), minimum, maximum);
  if (!value)
    return element_error(node, "{}=\"{:.40}\" is no integer from {} to {}", name, attribute.value(), minimum,
                         maximum);
  return *value;
}

Result<uint64_t> hex_attribute(const pugi::xml_node& node, const char* name, uint64_t fallback,
                               uint64_t maximum) {
  const auto attribute = node.attribute(name);
  if (!attribute) return fallback;
  const auto value = parse_hex(attribute.value(), maximum);
  if (!value)
    return element_error(node, "{}=\"{:.40}\" is no hexadecimal number up to 0x{:x}", name, attribute.value(),
                         maximum);
  return *value;
}

Result<BusId> bus_id_attribute(const pugi::xml_node& node, const char* name) {
  EPCCL_ASSIGN(const std::string_view text, required_attribute(node, name));
  const auto id = BusId::parse(text);
  if (!id) return element_error(node, "{}=\"{:.40}\" is no PCI bus id", name, text);
  return *id;
}

}  // namespace epccl::topology
