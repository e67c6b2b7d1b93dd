// The same kernels, compiled once for each level of vector instructions.
//
// The files of a level are compiled with its instructions allowed everywhere, so they may call nothing that
// is inline and has external linkage: the linker keeps one copy of that for the whole library, and it might
// be theirs. Hence pointers and counts, and unnamed namespaces.
#pragma once

#include "device/host/row_sum.hpp"
#include "device/host/simd/index_list_kernels.hpp"
#include "device/host/simd/reduce_call.hpp"

namespace epccl::device {

struct Kernels {
  void (*sum_row)(RowType, std::byte* destination, const SumTerm* terms, size_t term_count, size_t elements);
  void (*quantise_e4m3)(RowType, const std::byte* source, size_t elements, std::byte* values,
                        std::byte* scales);
  void (*dequantise_e4m3)(RowType, const std::byte* values, const std::byte* scales, size_t elements,
                          std::byte* destination);
  void (*reduce)(const ReduceCall&);
  const IndexListKernels* index_lists;
};

extern const Kernels portable_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif

/// The fastest that this machine can run and a SimdLimit allows.
const Kernels& kernels();

}  // namespace epccl::device
