// Bounds on XML that are checked before any parser sees it.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.hpp"

namespace epccl::topology {

struct XmlLimits {
  static constexpr size_t bytes = size_t{64} << 20;
  static constexpr size_t depth = 128;         // parsers recurse
  static constexpr size_t elements = 400'000;  // far above the largest machines' files
  static constexpr size_t siblings = 20'000;   // some consumers take time with the square of it
};

/// Error when the text is larger, deeper or has more elements than XmlLimits, when tags are not closed, when anything but
/// comments follows the root element, or when it is UTF-16 or has control characters.
/// Not a full check: a text that passes may still be no XML.
Status check_xml_limits(std::string_view xml);

}  // namespace epccl::topology
