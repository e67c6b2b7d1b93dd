// Elements of a vector as float32 and back, with the bits of the host's kernels (host/fp16.hpp, fp8.hpp, e5m2.hpp). Where the device
// has instructions for it they are used; where they differ, in NaNs, that is mended. Tests on a GPU hold them to the host.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "device/host/e5m2.hpp"
#include "device/host/fp16.hpp"
#include "device/host/fp8.hpp"
#include "device/host/reduction.hpp"
#include "device/host/row_type.hpp"
#include "device/kernels/body/vector.hpp"

// The first with conversions of float8.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define EPCCL_DEVICE_FP8
#endif

namespace epccl::device::kernels {

inline constexpr float quiet_nan = std::bit_cast<float>(0x7fc00000);

EPCCL_DEVICE float plain_nan(float value) {
  return value == value ? value : quiet_nan;
}

/// The number with these bits.
template <Element element>
EPCCL_DEVICE float widened(uint32_t bits) {
  if constexpr (element == Element::float32) return std::bit_cast<float>(bits);
  if constexpr (element == Element::bfloat16) return std::bit_cast<float>(bits << 16);
  if constexpr (element == Element::float16) {
#ifdef __CUDA_ARCH__
    float value = 0;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
    return value;
#else
    return float_of_float16(static_cast<uint16_t>(bits));
#endif
  }
  if constexpr (element == Element::float8e4m3) {
#ifdef EPCCL_DEVICE_FP8
    uint32_t halves = 0;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(bits)));
    return widened<Element::float16>(halves & 0xffff);
#else
    return float_of_e4m3(static_cast<uint8_t>(bits));
#endif
  }
  if constexpr (element == Element::float8e5m2) return widened<Element::float16>(bits << 8);
}

/// The bits of the nearest number; float8 saturates. What a NaN becomes is some NaN.
template <Element element>
EPCCL_DEVICE uint32_t narrowed(float value) {
  if constexpr (element == Element::float32) return std::bit_cast<uint32_t>(value);
#ifdef __CUDA_ARCH__
  [[maybe_unused]] uint16_t bits = 0;
  if constexpr (element == Element::bfloat16) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
  if constexpr (element == Element::float16) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
#else
  if constexpr (element == Element::bfloat16) return bfloat16_of(value);
  if constexpr (element == Element::float16) return float16_of(value);
#endif
#ifdef EPCCL_DEVICE_FP8
  if constexpr (element == Element::float8e4m3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0F), "f"(value));
    return bits & 0xff;
  }
  if constexpr (element == Element::float8e5m2) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0F), "f"(value));
    return bits & 0xff;
  }
#else
  if constexpr (element == Element::float8e4m3) return e4m3_of(value);
  if constexpr (element == Element::float8e5m2) return e5m2_of(value);
#endif
}

/// Two float8e4m3 of the nearest numbers, the first in the low byte; saturating. What a NaN becomes is some NaN.
EPCCL_DEVICE uint32_t e4m3_pair(float first, float second) {
#ifdef EPCCL_DEVICE_FP8
  uint16_t bits = 0;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(second), "f"(first));
  return bits;
#else
  return uint32_t{e4m3_of(second)} << 8 | e4m3_of(first);
#endif
}

/// The same for numbers of 16 bits, the first in the low half.
template <Element element>
EPCCL_DEVICE uint32_t narrowed_pair(float first, float second) {
  static_assert(bytes_of(element) == 2);
#ifdef __CUDA_ARCH__
  uint32_t both = 0;
  if constexpr (element == Element::bfloat16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
#else
  return narrowed<element>(second) << 16 | narrowed<element>(first);
#endif
}

template <Element element>
EPCCL_DEVICE void widen_pair(uint32_t both, float& first, float& second) {
  static_assert(bytes_of(element) == 2);
#ifdef __CUDA_ARCH__
  if constexpr (element == Element::float16) {
    asm("{ .reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(first), "=f"(second)
        : "r"(both));
    return;
  }
#endif
  first = widened<element>(both & 0xffff);
  second = widened<element>(both >> 16);
}

/// Of two float8e4m3, the first in the low byte.
EPCCL_DEVICE void widen_e4m3_pair(uint32_t codes, float& first, float& second) {
#ifdef EPCCL_DEVICE_FP8
  uint32_t halves = 0;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  widen_pair<Element::float16>(halves, first, second);
#else
  first = float_of_e4m3(static_cast<uint8_t>(codes));
  second = float_of_e4m3(static_cast<uint8_t>(codes >> 8));
#endif
}

/// Of a word: all but signs.
template <Element element>
inline constexpr uint32_t magnitude_bits = bytes_of(element) == 2 ? 0x7fff7fff : 0x7fffffff;

/// Of the numbers in two words, half by half where they have 16 bits, those of larger magnitude; their signs are of no meaning. An
/// infinity is larger than all that is finite, and a NaN stays one.
template <Element element>
EPCCL_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 860
  // Takes magnitudes on its own.
  uint32_t result = 0;
  if constexpr (element == Element::bfloat16)
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  else if constexpr (element == Element::float16)
    asm("max.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  else
    asm("max.NaN.xorsign.abs.f32 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
#else
  a &= magnitude_bits<element>;
  b &= magnitude_bits<element>;
  if constexpr (bytes_of(element) == 4) return a > b ? a : b;
  const uint32_t low = (a & 0xffff) > (b & 0xffff) ? a & 0xffff : b & 0xffff;
  return (a >> 16 > b >> 16 ? a >> 16 : b >> 16) << 16 | low;
#endif
}

/// The largest magnitude in a word, as a float32.
template <Element element>
EPCCL_DEVICE uint32_t largest_magnitude_in(uint32_t word) {
  word &= magnitude_bits<element>;
  if constexpr (bytes_of(element) == 4) {
    return word;
  } else {
    float first = 0, second = 0;
    widen_pair<element>(word, first, second);
    const auto a = std::bit_cast<uint32_t>(first), b = std::bit_cast<uint32_t>(second);
    return a > b ? a : b;
  }
}

/// One rounding.
EPCCL_DEVICE float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

/// The NaN that results have.
template <Element element>
inline constexpr uint32_t nan_bits = element == Element::float32    ? 0x7fc00000
                                     : element == Element::float16  ? float16_nan
                                     : element == Element::bfloat16 ? bfloat16_nan
                                                                    : 0x7f;

template <Element element>
EPCCL_DEVICE uint32_t result_bits(float value) {
  return value == value ? narrowed<element>(value) : nan_bits<element>;
}

/// To the precision of the element and back.
template <Element element>
EPCCL_DEVICE float rounded(float value) {
  if constexpr (element == Element::float32) return value;
  return widened<element>(narrowed<element>(value));
}

/// The same for two.
template <Element element>
EPCCL_DEVICE void round_pair(float& first, float& second) {
  if constexpr (element != Element::float32)
    widen_pair<element>(narrowed_pair<element>(first, second), first, second);
}

/// Elements of `size` bytes of a vector.
template <uint32_t size>
EPCCL_DEVICE uint32_t bits_at(const Vector& vector, uint32_t i) {
  if constexpr (size == 4) return vector.word[i];
  constexpr uint32_t in_word = 4 / size, mask = size == 4 ? ~0U : (1U << size % 4 * 8) - 1;
  return vector.word[i / in_word] >> i % in_word * size * 8 & mask;
}
template <uint32_t size>
EPCCL_DEVICE void put_bits(Vector& vector, uint32_t i, uint32_t bits) {
  constexpr uint32_t in_word = 4 / size;
  vector.word[i / in_word] |= bits << i % in_word * size * 8;
}

template <Element element>
inline constexpr uint32_t per_vector = static_cast<uint32_t>(vector_bytes / bytes_of(element));

constexpr Element element_of(RowType type) {
  if (type == RowType::bfloat16) return Element::bfloat16;
  return type == RowType::float16 ? Element::float16 : Element::float32;
}

template <Element element>
EPCCL_DEVICE void decode(const Vector& vector, float (&values)[per_vector<element>]) {
  EPCCL_UNROLL
  for (uint32_t i = 0; i < per_vector<element>; ++i)
    values[i] = widened<element>(bits_at<bytes_of(element)>(vector, i));
}

template <size_t count>
EPCCL_DEVICE bool any_nan(const float (&values)[count]) {
  bool found = false;
  EPCCL_UNROLL
  for (size_t i = 0; i < count; i += 2) {
    // One comparison for two.
    const bool ordered = values[i] <= values[i + 1] || values[i] > values[i + 1];
    found = found || !ordered;
  }
  return found;
}

/// As results. Two at a time where none has to be mended: devices narrow pairs faster than single numbers.
template <Element element>
EPCCL_DEVICE Vector encode(const float (&values)[per_vector<element>]) {
  Vector vector;
  if constexpr (bytes_of(element) == 2) {
    if (!any_nan(values)) {
      EPCCL_UNROLL
      for (uint32_t i = 0; i < 4; ++i)
        vector.word[i] = narrowed_pair<element>(values[2 * i], values[2 * i + 1]);
      return vector;
    }
  }
  EPCCL_UNROLL
  for (uint32_t i = 0; i < per_vector<element>; ++i)
    put_bits<bytes_of(element)>(vector, i, result_bits<element>(values[i]));
  return vector;
}

}  // namespace epccl::device::kernels
