// Lanes of AVX2 and F16C.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "device/host/row_type.hpp"

namespace epccl::device {
namespace {

struct Avx2Lanes {
  static constexpr size_t width = 8;
  using Float = __m256;
  using Bits = __m256i;

  static Float broadcast(float value) { return _mm256_set1_ps(value); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float divide(Float a, Float b) { return _mm256_div_ps(a, b); }

  template <RowType type>
  static Float load(const std::byte* from) {
    if constexpr (type == RowType::float32) return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    if constexpr (type == RowType::float16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

  template <RowType type>
  static void store(std::byte* to, Float value) {
    const Float plain = plain_nan(value);
    if constexpr (type == RowType::float32) {
      _mm256_storeu_ps(reinterpret_cast<float*>(to), plain);
    } else if constexpr (type == RowType::float16) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(plain, _MM_FROUND_TO_NEAREST_INT));
    } else {
      const Bits high = _mm256_srli_epi32(bfloat16_and_rest(plain), 16);
      const __m128i bits = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bits);
    }
  }

  /// Every NaN as the one positive quiet NaN.
  static Float plain_nan(Float value) {
    const Float nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(value, nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  }

  /// A NaN has to be quiet, and one of `type`, as is any that came from a row.
  template <RowType type>
  static Float round(Float value) {
    if constexpr (type == RowType::float32) return value;
    if constexpr (type == RowType::float16)
      return _mm256_cvtph_ps(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    return _mm256_castsi256_ps(_mm256_and_si256(bfloat16_and_rest(value), _mm256_set1_epi32(-0x10000)));
  }

  /// |x| as bits, which order as the numbers do; 0 for what is not finite.
  static Bits finite_magnitude(Float value) {
    const Bits bits = _mm256_and_si256(_mm256_castps_si256(value), _mm256_set1_epi32(0x7fffffff));
    return _mm256_and_si256(bits, _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), bits));
  }
  static Bits larger(Bits a, Bits b) { return _mm256_max_epi32(a, b); }
  static float largest(Bits magnitudes) {
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(magnitudes), _mm256_extracti128_si256(magnitudes, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(most));
  }

  /// As e4m3_of().
  static void store_e4m3(std::byte* to, Float value) { store_fp8<3, 7>(to, value, 448); }
  /// As e5m2_of().
  static void store_e5m2(std::byte* to, Float value) { store_fp8<2, 15>(to, value, 57344); }

  /// e4m3 shifted into place is a float16, subnormals included, but for the exponent's bias (a factor of 2^8)
  /// and NaN.
  static Float load_e4m3(const std::byte* from) {
    const __m128i code = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    const __m128i magnitude = _mm_and_si128(code, _mm_set1_epi16(0x7f));
    const __m128i nan =
        _mm_and_si128(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7e00));
    const __m128i sign = _mm_slli_epi16(_mm_xor_si128(code, magnitude), 8);
    const __m128i half = _mm_or_si128(_mm_or_si128(_mm_slli_epi16(magnitude, 7), nan), sign);
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(0x1p8f));
  }
  /// e5m2 is the upper half of a float16.
  static Float load_e5m2(const std::byte* from) {
    const __m128i code = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    return _mm256_cvtph_ps(_mm_slli_epi16(code, 8));
  }

 private:
  /// `near` is the power of two at which the last bit of a float32 is a step of the subnormals: the addition rounds.
  template <int mantissa_bits, int bias>
  static void store_fp8(std::byte* to, Float value, float most) {
    constexpr int cut = 23 - mantissa_bits;
    constexpr int smallest_normal = (1 - bias + 127) << 23, near_bits = (1 - bias + cut + 127) << 23;
    const Float near = _mm256_castsi256_ps(_mm256_set1_epi32(near_bits));
    const Bits bits = _mm256_castps_si256(value);
    const Float magnitude = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    const Bits limited = _mm256_castps_si256(_mm256_min_ps(magnitude, _mm256_set1_ps(most)));
    const Bits odd = _mm256_and_si256(_mm256_srli_epi32(limited, cut), _mm256_set1_epi32(1));
    constexpr int half_a_step = (1 << (cut - 1)) - 1;
    const Bits biased = _mm256_add_epi32(limited, _mm256_set1_epi32(half_a_step - ((127 - bias) << 23)));
    const Bits normal = _mm256_srli_epi32(_mm256_add_epi32(biased, odd), cut);
    const Bits subnormal =
        _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(magnitude, near)), _mm256_castps_si256(near));
    const Float normal_from = _mm256_castsi256_ps(_mm256_set1_epi32(smallest_normal));
    const Bits small = _mm256_castps_si256(_mm256_cmp_ps(magnitude, normal_from, _CMP_LT_OQ));
    const Bits nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    Bits code = _mm256_blendv_epi8(normal, subnormal, small);
    code = _mm256_or_si256(code, _mm256_and_si256(nan, _mm256_set1_epi32(0x7f)));
    code = _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
  }

  /// Rounded to bfloat16 in the upper halves; the lower halves are rubbish.
  static Bits bfloat16_and_rest(Float value) {
    const Bits bits = _mm256_castps_si256(value);
    const Bits odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  }
};

}  // namespace
}  // namespace epccl::device
