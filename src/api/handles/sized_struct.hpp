// The caller's structs that begin with size and magic: made by an initialiser, and longer in a newer library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/status.hpp"

namespace epccl::api {

/// The caller's struct as far as both sides know it, the rest as in `defaults`: what the initialiser makes. A struct of a program that was built
/// with an older header is shorter, of one with a newer header longer.
template <typename T>
Result<T> read_sized(const char* what, const T& given, T defaults, const char* initialiser) {
  const auto magic = defaults.magic;
  size_t size = 0;
  std::memcpy(&size, &given, sizeof size);
  if (size < offsetof(T, magic) + sizeof magic || size > 64 * sizeof(T))
    return error(Code::invalid_argument, "{}.size is {}: use {}", what, size, initialiser);
  std::memcpy(&defaults, &given, std::min(size, sizeof(T)));
  if (defaults.magic != magic)
    return error(Code::invalid_argument, "{}.magic is {:#x}: use {}", what, defaults.magic, initialiser);
  defaults.size = sizeof(T);
  return defaults;
}

/// The way back: fills the caller's struct, which read_sized() has accepted, as far as both sides know it.
template <typename T>
void write_sized(T* out, T value) {
  std::memcpy(&value.size, out, sizeof value.size);
  std::memcpy(out, &value, std::min(value.size, sizeof value));
}

}  // namespace epccl::api
