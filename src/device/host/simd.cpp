#include "device/host/simd.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>

#include "device/host/simd/kernels.hpp"

namespace epccl::device {
namespace {

const Kernels* kernels_of(Simd level) {
#if defined(__x86_64__)
  if (level == Simd::avx512) return &avx512_kernels;
  if (level == Simd::avx2) return &avx2_kernels;
#endif
  (void)level;
  return &portable_kernels;
}

#if defined(__x86_64__)
// clang's __builtin_cpu_supports() has not heard of it.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

std::atomic<const Kernels*>& chosen() {
  static std::atomic<const Kernels*> value = kernels_of(best_simd());
  return value;
}

}  // namespace

Simd best_simd() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !has_f16c()) return Simd::portable;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return wide ? Simd::avx512 : Simd::avx2;
#else
  return Simd::portable;
#endif
}

const Kernels& kernels() {
  return *chosen().load(std::memory_order_relaxed);
}

SimdLimit::SimdLimit(Simd most) {
  chosen().store(kernels_of(std::min(most, best_simd())), std::memory_order_relaxed);
}

SimdLimit::~SimdLimit() {
  chosen().store(kernels_of(best_simd()), std::memory_order_relaxed);
}

}  // namespace epccl::device
