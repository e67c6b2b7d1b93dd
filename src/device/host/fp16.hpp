// bfloat16 and float16 as bits, one at a time. To narrow is to round to nearest, ties to even; what is too
// large becomes an infinity, and every NaN the same quiet one, so that results can be compared bit for bit.
#pragma once

#include <bit>
#include <cstdint>

namespace epccl::device {

inline constexpr uint16_t bfloat16_nan = 0x7fc0;
inline constexpr uint16_t float16_nan = 0x7e00;

constexpr float float_of_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

constexpr uint16_t bfloat16_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return bfloat16_nan;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

constexpr float float_of_float16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x0400)
    return std::bit_cast<float>(sign | ((magnitude << 13) + (uint32_t{127 - 15} << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

constexpr uint16_t float16_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return float16_nan;
  if (magnitude >= std::bit_cast<uint32_t>(65520.0f)) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < std::bit_cast<uint32_t>(0x1p-14f)) {
    // Subnormals are multiples of 2^-24, which is the last bit of a float32 near 0.5: the addition rounds.
    const uint32_t steps = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f);
    return static_cast<uint16_t>(sign | (steps - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1) - (uint32_t{127 - 15} << 23);
  return static_cast<uint16_t>(sign | rounded >> 13);
}

}  // namespace epccl::device
