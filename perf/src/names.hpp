// Names on a command line, separated by commas.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace epccl::perf {

inline std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

/// The value among `values` whose name_of() is `text`.
template <typename T, typename NameOf>
Result<T> find_name(const char* option, std::string_view text, std::span<const T> values,
                    const NameOf& name_of) {
  std::string known;
  for (const T& value : values) {
    if (text == name_of(value)) return value;
    known += std::string(known.empty() ? "" : ", ") + name_of(value);
  }
  return error(Code::invalid_argument, "{} {}: want one of {}", option, text, known);
}

template <typename T, typename NameOf>
Result<T> find_name(const char* option, std::string_view text, std::initializer_list<T> values,
                    const NameOf& name_of) {
  return find_name(option, text, std::span<const T>(values.begin(), values.size()), name_of);
}

/// "all" of them, or some, each once.
template <typename T, typename NameOf>
Result<std::vector<T>> parse_names(const char* option, std::string_view text, std::span<const T> values,
                                   const NameOf& name_of) {
  if (text == "all") return std::vector<T>(values.begin(), values.end());
  std::vector<T> found;
  for (const std::string_view part : split(text)) {
    EPCCL_ASSIGN(const T value, find_name(option, part, values, name_of));
    if (std::find(found.begin(), found.end(), value) == found.end()) found.push_back(value);
  }
  return found;
}
template <typename T, typename NameOf>
Result<std::vector<T>> parse_names(const char* option, std::string_view text, std::initializer_list<T> values,
                                   const NameOf& name_of) {
  return parse_names(option, text, std::span<const T>(values.begin(), values.size()), name_of);
}

}  // namespace epccl::perf
