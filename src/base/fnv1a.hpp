// A hash for what processes compare, whoever built them.
#pragma once

#include <cstdint>
#include <string_view>

namespace epccl {

/// FNV-1a, 64 bits: the same on every machine. `seed` continues an earlier hash.
constexpr uint64_t fnv1a64(std::string_view text, uint64_t seed = 0xcbf29ce484222325) {
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return seed;
}

}  // namespace epccl
