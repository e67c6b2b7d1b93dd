#include "device/host/index_lists.hpp"

#include "device/host/simd/kernels.hpp"

namespace epccl::device {

bool number_from_one(std::span<const int64_t> from, uint32_t limit, uint32_t* to) {
  return kernels().index_lists->number_from_one64(from.data(), from.size(), limit, to);
}

bool number_from_one(std::span<const int32_t> from, uint32_t limit, uint32_t* to) {
  return kernels().index_lists->number_from_one32(from.data(), from.size(), limit, to);
}

size_t split_runs(std::span<const uint64_t> words, uint32_t* lower, uint32_t* upper) {
  return kernels().index_lists->split_runs(words.data(), words.size(), lower, upper);
}

size_t indices_with_bit(std::span<const uint64_t> masks, unsigned bit, uint32_t* to) {
  return kernels().index_lists->indices_with_bit(masks.data(), masks.size(), bit, to);
}

bool ascend_below(std::span<const uint32_t> numbers, uint32_t limit) {
  return kernels().index_lists->ascend_below(numbers.data(), numbers.size(), limit);
}

bool words_fit(std::span<const uint32_t> words, const WordLimits& limits, size_t& odd) {
  return kernels().index_lists->words_fit(words.data(), words.size(), limits, odd);
}

}  // namespace epccl::device
