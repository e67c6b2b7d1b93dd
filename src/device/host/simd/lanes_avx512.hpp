// Lanes of AVX-512 (F, BW, DQ, VL). Its conversion to bfloat16 is not used: that takes subnormals for zero.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "device/host/row_type.hpp"

namespace epccl::device {
namespace {

struct Avx512Lanes {
  static constexpr size_t width = 16;
  using Float = __m512;
  using Bits = __m512i;

  static Float broadcast(float value) { return _mm512_set1_ps(value); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float divide(Float a, Float b) { return _mm512_div_ps(a, b); }

  template <RowType type>
  static Float load(const std::byte* from) {
    if constexpr (type == RowType::float32) return _mm512_loadu_ps(from);
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if constexpr (type == RowType::float16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }

  template <RowType type>
  static void store(std::byte* to, Float value) {
    const Float plain = plain_nan(value);
    if constexpr (type == RowType::float32) {
      _mm512_storeu_ps(to, plain);
    } else if constexpr (type == RowType::float16) {
      const __m256i bits = _mm512_cvtps_ph(plain, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
    } else {
      const __m256i bits = _mm512_cvtepi32_epi16(_mm512_srli_epi32(bfloat16_and_rest(plain), 16));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
    }
  }

  /// Every NaN as the one positive quiet NaN.
  static Float plain_nan(Float value) {
    return _mm512_mask_blend_ps(is_nan(value), value, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
  }

  /// A NaN has to be quiet, and one of `type`, as is any that came from a row.
  template <RowType type>
  static Float round(Float value) {
    if constexpr (type == RowType::float32) return value;
    if constexpr (type == RowType::float16)
      return _mm512_cvtph_ps(_mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return _mm512_castsi512_ps(_mm512_and_si512(bfloat16_and_rest(value), _mm512_set1_epi32(-0x10000)));
  }

  /// |x| as bits, which order as the numbers do; 0 for what is not finite.
  static Bits finite_magnitude(Float value) {
    const Bits bits = _mm512_and_si512(_mm512_castps_si512(value), _mm512_set1_epi32(0x7fffffff));
    return _mm512_maskz_mov_epi32(_mm512_cmplt_epi32_mask(bits, _mm512_set1_epi32(0x7f800000)), bits);
  }
  static Bits larger(Bits a, Bits b) { return _mm512_max_epi32(a, b); }
  static float largest(Bits magnitudes) {
    const __m256i half =
        _mm256_max_epi32(_mm512_castsi512_si256(magnitudes), _mm512_extracti64x4_epi64(magnitudes, 1));
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
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
    const __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi16(0x7f));
    const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f));
    const __m256i nan = _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7e00));
    const __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(code, magnitude), 8);
    const __m256i half = _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(magnitude, 7), nan), sign);
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(0x1p8f));
  }
  /// e5m2 is the upper half of a float16.
  static Float load_e5m2(const std::byte* from) {
    const __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm512_cvtph_ps(_mm256_slli_epi16(code, 8));
  }

 private:
  /// `near` is the power of two at which the last bit of a float32 is a step of the subnormals: the addition rounds.
  template <int mantissa_bits, int bias>
  static void store_fp8(std::byte* to, Float value, float most) {
    constexpr int cut = 23 - mantissa_bits;
    constexpr int smallest_normal = (1 - bias + 127) << 23, near_bits = (1 - bias + cut + 127) << 23;
    const Float near = _mm512_castsi512_ps(_mm512_set1_epi32(near_bits));
    const Bits bits = _mm512_castps_si512(value);
    const Float magnitude = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
    const Bits limited = _mm512_castps_si512(_mm512_min_ps(magnitude, _mm512_set1_ps(most)));
    const Bits odd = _mm512_and_si512(_mm512_srli_epi32(limited, cut), _mm512_set1_epi32(1));
    constexpr int half_a_step = (1 << (cut - 1)) - 1;
    const Bits biased = _mm512_add_epi32(limited, _mm512_set1_epi32(half_a_step - ((127 - bias) << 23)));
    const Bits normal = _mm512_srli_epi32(_mm512_add_epi32(biased, odd), cut);
    const Bits subnormal =
        _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(magnitude, near)), _mm512_castps_si512(near));
    const Float normal_from = _mm512_castsi512_ps(_mm512_set1_epi32(smallest_normal));
    const __mmask16 small = _mm512_cmp_ps_mask(magnitude, normal_from, _CMP_LT_OQ);
    Bits code = _mm512_mask_blend_epi32(small, normal, subnormal);
    code = _mm512_mask_blend_epi32(is_nan(value), code, _mm512_set1_epi32(0x7f));
    code = _mm512_or_si512(code, _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(code));
  }

  static __mmask16 is_nan(Float value) { return _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q); }

  /// Rounded to bfloat16 in the upper halves; the lower halves are rubbish.
  static Bits bfloat16_and_rest(Float value) {
    const Bits bits = _mm512_castps_si512(value);
    const Bits rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    return _mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1));
  }
};

}  // namespace
}  // namespace epccl::device
