// Rows as FP8: e4m3 (the OCP's e4m3fn: 4 bits of exponent, 3 of mantissa, largest 448, no infinities, NaN
// 0x7f and 0xff) with one float32 scale for each 128 elements, as in DeepSeek-V3 and DeepEP: an element is
// about value * scale.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "device/host/row_type.hpp"

namespace epccl::device {

inline constexpr size_t e4m3_block = 128;
inline constexpr float e4m3_max = 448;

/// Scales of a row; the last block may be shorter.
constexpr size_t e4m3_scales(size_t elements) {
  return elements / e4m3_block + (elements % e4m3_block != 0);
}

/// To nearest, ties to even. Beyond ±448, and infinities, become ±448; NaN stays NaN. Signs are kept.
constexpr uint8_t e4m3_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint8_t>(sign | 0x7f);
  if (magnitude > std::bit_cast<uint32_t>(e4m3_max)) magnitude = std::bit_cast<uint32_t>(e4m3_max);
  if (magnitude < std::bit_cast<uint32_t>(0x1p-6f)) {
    // Subnormals are multiples of 2^-9, which is the last bit of a float32 near 2^14: the addition rounds.
    const uint32_t steps = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f);
    return static_cast<uint8_t>(sign | (steps - std::bit_cast<uint32_t>(0x1p14f)));
  }
  const uint32_t rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1) - (uint32_t{127 - 7} << 23);
  return static_cast<uint8_t>(sign | rounded >> 20);
}

constexpr float float_of_e4m3(uint8_t code) {
  const uint32_t sign = uint32_t{code & 0x80u} << 24;
  const uint32_t magnitude = code & 0x7f;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000);
  if (magnitude >= 8) return std::bit_cast<float>(sign | ((magnitude << 20) + (uint32_t{127 - 7} << 23)));
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
}

/// Writes `elements` values and e4m3_scales(elements) scales; nothing needs alignment. With amax the largest
/// finite |x| of a block:
///   scale = amax / 448, but not below the smallest normal float32 (2^-126); 1 where amax is 0
///   value = e4m3_of(x / scale)
/// An infinity becomes ±448 of its block's scale, a NaN stays NaN; neither counts for amax. (DeepEP
/// multiplies by 448 / amax and does not let amax fall below 1e-4; the division here rounds once less, and
/// cannot overflow.) Every path gives the same bits (simd.hpp), in every thread (ieee_floats.hpp).
void quantise_e4m3(RowType type, const std::byte* source, size_t elements, std::byte* values,
                   std::byte* scales);

/// x = value * scale in float32, then rounded to `type`; a NaN comes out as the one positive quiet NaN.
void dequantise_e4m3(const std::byte* values, const std::byte* scales, size_t elements, RowType type,
                     std::byte* destination);

}  // namespace epccl::device
