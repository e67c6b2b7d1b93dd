// Those loops of index_lists.hpp that leave something out. What is left is packed in a register and stored whole: the
// instruction that stores packed takes a hundred cycles on some processors.
#pragma once

#include <immintrin.h>

#include "device/host/simd/index_list_loops.hpp"

namespace epccl::device {
namespace {

size_t split_runs_avx512(const uint64_t* words, size_t count, uint32_t* lower, uint32_t* upper) {
  const __m512i lower_halves = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i upper_halves = _mm512_add_epi32(lower_halves, _mm512_set1_epi32(1));
  uint32_t* end = upper;
  uint32_t last = UINT32_MAX;
  size_t at = 0;
  for (; at + 16 <= count; at += 16) {
    const __m512i a = _mm512_loadu_si512(words + at), b = _mm512_loadu_si512(words + at + 8);
    const __m512i low = _mm512_permutex2var_epi32(a, lower_halves, b);
    const __m512i high = _mm512_permutex2var_epi32(a, upper_halves, b);
    const __m512i before = _mm512_alignr_epi32(high, _mm512_set1_epi32(static_cast<int>(last)), 15);
    const __mmask16 first = _mm512_cmpneq_epi32_mask(high, before);
    _mm512_storeu_si512(lower + at, _mm512_mask_or_epi32(low, first, low, _mm512_set1_epi32(1)));
    _mm512_storeu_si512(end, _mm512_maskz_compress_epi32(first, high));
    end += __builtin_popcount(first);
    last = static_cast<uint32_t>(words[at + 15] >> 32);
  }
  return static_cast<size_t>(end - upper) + split_rest(words, at, count, last, lower, end);
}

size_t indices_avx512(const uint64_t* masks, size_t count, unsigned bit, uint32_t* to) {
  const __m512i wanted = _mm512_set1_epi64(static_cast<long long>(uint64_t{1} << bit));
  __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  uint32_t* end = to;
  size_t at = 0;
  for (; at + 16 <= count; at += 16) {
    const uint32_t first = _mm512_test_epi64_mask(_mm512_loadu_si512(masks + at), wanted);
    const uint32_t second = _mm512_test_epi64_mask(_mm512_loadu_si512(masks + at + 8), wanted);
    const auto with_bit = static_cast<__mmask16>(first | second << 8);
    _mm512_storeu_si512(end, _mm512_maskz_compress_epi32(with_bit, index));
    end += __builtin_popcount(with_bit);
    index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
  }
  return static_cast<size_t>(end - to) + indices_from(masks, at, count, bit, end);
}

}  // namespace
}  // namespace epccl::device
