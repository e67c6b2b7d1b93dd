// Numbers in text that is not to be trusted: the whole text is a number in range, or there is none.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace epccl::topology {

/// Decimal, with an optional '-'.
inline std::optional<int64_t> parse_integer(std::string_view text, int64_t minimum, int64_t maximum) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value < minimum || value > maximum)
    return {};
  return value;
}

/// Hexadecimal, with or without "0x".
inline std::optional<uint64_t> parse_hex(std::string_view text, uint64_t maximum = UINT64_MAX) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (code != std::errc{} || end != text.data() + text.size() || value > maximum) return {};
  return value;
}

/// A finite decimal fraction, at least zero.
inline std::optional<double> parse_fraction(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    return {};
  return value;
}

}  // namespace epccl::topology
