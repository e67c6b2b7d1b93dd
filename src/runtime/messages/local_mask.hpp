// Sets of ranks of a node, by local position.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transports/shm/node_segment.hpp"

namespace epccl::runtime {

inline bool has(const transports::LocalMask& mask, int local) {
  return (mask[static_cast<size_t>(local) / 64] >> (local % 64) & 1) != 0;
}
inline void add(transports::LocalMask& mask, int local) {
  mask[static_cast<size_t>(local) / 64] |= uint64_t{1} << (local % 64);
}
inline void remove(transports::LocalMask& mask, int local) {
  mask[static_cast<size_t>(local) / 64] &= ~(uint64_t{1} << (local % 64));
}
inline bool is_empty(const transports::LocalMask& mask) {
  return std::ranges::all_of(mask, [](uint64_t word) { return word == 0; });
}

}  // namespace epccl::runtime
