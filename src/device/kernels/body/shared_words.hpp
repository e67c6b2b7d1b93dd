// Words that kernels share with other kernels, GPUs and the host.
#pragma once

#include <cstdint>

#include "device/kernels/body/warp.hpp"

#ifndef __CUDACC__
#include <atomic>
#include <chrono>
#include <thread>
#endif

namespace epccl::device::kernels {

/// After all that this lane wrote or saw before.
EPCCL_DEVICE void store_release(uint64_t* word, uint64_t value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
  std::atomic_ref(*word).store(value, std::memory_order_release);
#endif
}

/// What was written before the value was stored is seen after this.
EPCCL_DEVICE uint64_t load_acquire(const uint64_t* word) {
#ifdef __CUDA_ARCH__
  uint64_t value = 0;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
#else
  return std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);  // only read
#endif
}

/// Adds one to a word of this GPU; what it was.
EPCCL_DEVICE uint64_t count_up(uint64_t* word) {
#ifdef __CUDA_ARCH__
  return atomicAdd(reinterpret_cast<unsigned long long*>(word), 1ULL);
#else
  return std::atomic_ref(*word).fetch_add(1);
#endif
}

/// Before one looks again.
EPCCL_DEVICE void pause_a_little() {
#ifdef __CUDA_ARCH__
  __nanosleep(100);
#elif !defined(__CUDACC__)
  std::this_thread::sleep_for(std::chrono::microseconds(20));
#endif
}

}  // namespace epccl::device::kernels
