// Many small copies, then signals (CopiesParameters has the order of memory).
#pragma once

#include "device/cuda/kernels/body/rows.hpp"

#ifndef __CUDACC__
#include <atomic>
#endif

namespace epccl::device::cuda {

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

template <class Warp>
EPCCL_DEVICE void copies_body(const Warp& warp, const CopiesParameters& parameters) {
  if (parameters.tiles_of_copy > 0) {
    for (Tiles tiles(warp.index(), warp.count(), parameters.tiles_of_copy);
         tiles.row() < parameters.copy_count; tiles.next()) {
      const SmallCopy& copy = parameters.copies[tiles.row()];
      if (tiles.tile() >= move_tiles(copy.bytes)) continue;
      warp.each(
          [&](uint32_t lane) { copy_tile(copy.destination, copy.source, copy.bytes, tiles.tile(), lane); });
    }
  }
  if (parameters.signal_count == 0 || !warp.is_last(parameters.arrived)) return;
  warp.each([&](uint32_t lane) {
    for (uint32_t i = lane; i < parameters.signal_count; i += warp_lanes)
      store_release(parameters.signals[i].word, parameters.signals[i].value);
  });
}

}  // namespace epccl::device::cuda
