// FP8 with 5 bits of exponent and 2 of mantissa, as bits, one at a time: like float16 cut to its upper half. Largest finite
// 57344, infinities 0x7c and 0xfc.
#pragma once

#include <bit>
#include <cstdint>

#include "device/host/fp16.hpp"

namespace epccl::device {

inline constexpr float e5m2_max = 57344;

constexpr float float_of_e5m2(uint8_t code) {
  return float_of_float16(static_cast<uint16_t>(code << 8));
}

/// To nearest, ties to even. Beyond ±57344, and infinities, become ±57344, as NCCL has it; NaN stays NaN. Signs are kept.
constexpr uint8_t e5m2_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint8_t>(sign | 0x7f);
  if (magnitude > std::bit_cast<uint32_t>(e5m2_max)) magnitude = std::bit_cast<uint32_t>(e5m2_max);
  if (magnitude < std::bit_cast<uint32_t>(0x1p-14f)) {
    // Subnormals are multiples of 2^-16, which is the last bit of a float32 near 2^7: the addition rounds.
    const uint32_t steps = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p7f);
    return static_cast<uint8_t>(sign | (steps - std::bit_cast<uint32_t>(0x1p7f)));
  }
  const uint32_t rounded = magnitude + 0xfffff + (magnitude >> 21 & 1) - (uint32_t{127 - 15} << 23);
  return static_cast<uint8_t>(sign | rounded >> 21);
}

}  // namespace epccl::device
