// The loops of index_lists.hpp, without branches: compilers vectorise all but those that leave something out, which AVX-512
// has instructions for (index_list_avx512.hpp).
#pragma once

#include "device/host/simd/index_list_kernels.hpp"

namespace epccl::device {
namespace {

constexpr uint32_t sign_bit = 1U << 31;

// A number that is too large makes limit - number negative, and so is one that was negative before: one bit says both.
template <typename Id, typename Unsigned>
bool number_from_one_with(const Id* from, size_t count, uint32_t limit, uint32_t* to) {
  Unsigned seen = 0;
  for (size_t i = 0; i < count; ++i) {
    const Unsigned number = static_cast<Unsigned>(from[i]) + 1;
    seen |= number | (Unsigned{limit} - number);
    to[i] = static_cast<uint32_t>(number);
  }
  return seen >> (8 * sizeof(Unsigned) - 1) == 0;
}

/// From `at` on; `last`: the upper half before.
size_t split_rest(const uint64_t* words, size_t at, size_t count, uint32_t last, uint32_t* lower,
                  uint32_t* upper) {
  uint32_t* end = upper;
  for (; at < count; ++at) {
    const auto high = static_cast<uint32_t>(words[at] >> 32);
    const uint32_t first = high != last ? 1 : 0;
    lower[at] = static_cast<uint32_t>(words[at]) | first;
    *end = high;
    end += first;
    last = high;
  }
  return static_cast<size_t>(end - upper);
}

[[maybe_unused]] size_t split_runs_plain(const uint64_t* words, size_t count, uint32_t* lower,
                                         uint32_t* upper) {
  return split_rest(words, 0, count, UINT32_MAX, lower, upper);
}

size_t indices_from(const uint64_t* masks, size_t at, size_t count, unsigned bit, uint32_t* to) {
  uint32_t* end = to;
  for (; at < count; ++at) {
    *end = static_cast<uint32_t>(at);
    end += masks[at] >> bit & 1;
  }
  return static_cast<size_t>(end - to);
}

[[maybe_unused]] size_t indices_plain(const uint64_t* masks, size_t count, unsigned bit, uint32_t* to) {
  return indices_from(masks, 0, count, bit, to);
}

bool ascend_below_plain(const uint32_t* numbers, size_t count, uint32_t limit) {
  if (count == 0) return true;
  uint32_t seen = numbers[0];
  for (size_t i = 1; i < count; ++i) seen |= numbers[i] | (numbers[i] - numbers[i - 1] - 1);
  return (seen & sign_bit) == 0 && numbers[count - 1] < limit;
}

bool words_fit_plain(const uint32_t* words, size_t count, const WordLimits& limits, size_t& odd) {
  const uint32_t most = limits.limit - 1, mask = limits.mask, masked_most = limits.masked_limit - 1;
  uint32_t seen = 0, odd_words = 0;
  for (size_t i = 0; i < count; ++i) {
    seen |= words[i] | (most - words[i]) | (masked_most - (words[i] & mask));
    odd_words += words[i] & 1;
  }
  odd = odd_words;
  return (seen & sign_bit) == 0;
}

}  // namespace
}  // namespace epccl::device
