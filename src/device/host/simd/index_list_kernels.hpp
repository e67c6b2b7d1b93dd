// The loops of index_lists.hpp, compiled once for each level of vector instructions (see kernels.hpp for what that asks of them).
#pragma once

#include "device/host/index_lists.hpp"

namespace epccl::device {

struct IndexListKernels {
  bool (*number_from_one64)(const int64_t* from, size_t count, uint32_t limit, uint32_t* to);
  bool (*number_from_one32)(const int32_t* from, size_t count, uint32_t limit, uint32_t* to);
  size_t (*split_runs)(const uint64_t* words, size_t count, uint32_t* lower, uint32_t* upper);
  size_t (*indices_with_bit)(const uint64_t* masks, size_t count, unsigned bit, uint32_t* to);
  bool (*ascend_below)(const uint32_t* numbers, size_t count, uint32_t limit);
  bool (*words_fit)(const uint32_t* words, size_t count, const WordLimits& limits, size_t& odd);
};

extern const IndexListKernels portable_index_lists;
#if defined(__x86_64__)
extern const IndexListKernels avx2_index_lists;
extern const IndexListKernels avx512_index_lists;
#endif

}  // namespace epccl::device
