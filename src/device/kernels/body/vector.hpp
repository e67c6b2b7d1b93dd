// Memory in pieces of 16 bytes: what a lane reads or writes at once. Nothing outside of the bytes asked for is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/kernels/body/warp.hpp"

#ifndef __CUDACC__
#include <cstdlib>
#endif

namespace epccl::device::kernels {

struct alignas(16) Vector {
  uint32_t word[4] = {};
};
inline constexpr uint32_t vector_bytes = sizeof(Vector);

EPCCL_DEVICE uint32_t misalignment(const void* address, uint32_t of = vector_bytes) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(address)) & (of - 1);
}

/// T is as large as an access that the device has; `from` is aligned to it. Rows pass through once: they need not stay in caches.
template <class T>
EPCCL_DEVICE T load_aligned(const std::byte* from) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == sizeof(uint4)) {
    const uint4 loaded = __ldcs(reinterpret_cast<const uint4*>(from));
    return T{{loaded.x, loaded.y, loaded.z, loaded.w}};
  } else {
    return __ldcs(reinterpret_cast<const T*>(from));
  }
#else
  if (misalignment(from, sizeof(T)) != 0) std::abort();  // as the device would
  T loaded;
  std::memcpy(&loaded, from, sizeof loaded);
  return loaded;
#endif
}

template <class T>
EPCCL_DEVICE void store_aligned(std::byte* to, const T& value) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == sizeof(uint4))
    *reinterpret_cast<uint4*>(to) = make_uint4(value.word[0], value.word[1], value.word[2], value.word[3]);
  else
    *reinterpret_cast<T*>(to) = value;
#else
  if (misalignment(to, sizeof(T)) != 0) std::abort();
  std::memcpy(to, &value, sizeof value);
#endif
}

/// Four bytes out of eight, those of `low` and then those of `high`: each digit of `which`, the lowest first, names one.
EPCCL_DEVICE uint32_t picked_bytes(uint32_t low, uint32_t high, uint32_t which) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, which);
#else
  const uint64_t all = uint64_t{high} << 32 | low;
  uint32_t picked = 0;
  for (uint32_t i = 0; i < 4; ++i)
    picked |= static_cast<uint32_t>(all >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return picked;
#endif
}

/// 16 bytes of two vectors that follow each other, from byte `shift` (1 to 15) on.
EPCCL_DEVICE Vector shifted(const Vector& low, const Vector& high, uint32_t shift) {
  uint32_t word[8] = {low.word[0],  low.word[1],  low.word[2],  low.word[3],
                      high.word[0], high.word[1], high.word[2], high.word[3]};
  if ((shift & 8) != 0) {
    EPCCL_UNROLL
    for (int i = 0; i < 6; ++i) word[i] = word[i + 2];
  }
  if ((shift & 4) != 0) {
    EPCCL_UNROLL
    for (int i = 0; i < 5; ++i) word[i] = word[i + 1];
  }
  Vector result;
  EPCCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint64_t both = uint64_t{word[i + 1]} << 32 | word[i];
    result.word[i] = static_cast<uint32_t>(both >> (shift & 3) * 8);
  }
  return result;
}

/// Bytes of a vector that count: [first, last).
struct Part {
  uint32_t first = 0, last = vector_bytes;
  EPCCL_DEVICE bool whole() const { return first == 0 && last == vector_bytes; }
  EPCCL_DEVICE bool has(uint32_t byte) const { return byte >= first && byte < last; }
};

/// The bytes of `part`, one by one; the rest are 0. `at` is where byte 0 would be.
EPCCL_DEVICE Vector load_bytes(uintptr_t at, Part part) {
  Vector result;
  EPCCL_UNROLL
  for (uint32_t i = 0; i < vector_bytes; ++i)
    if (part.has(i)) result.word[i / 4] |= uint32_t{*reinterpret_cast<const uint8_t*>(at + i)} << i % 4 * 8;
  return result;
}

EPCCL_DEVICE void store_bytes(uintptr_t at, const Vector& value, Part part) {
  EPCCL_UNROLL
  for (uint32_t i = 0; i < vector_bytes; ++i)
    if (part.has(i))
      *reinterpret_cast<uint8_t*>(at + i) = static_cast<uint8_t>(value.word[i / 4] >> i % 4 * 8);
}

/// A run of bytes at any address, as vectors at any offset of it.
struct Bytes {
  const std::byte* begin = nullptr;
  uint64_t count = 0;

  /// 16 bytes from `offset` on, of which those in `part` lie in the run.
  EPCCL_DEVICE Vector load(int64_t offset, Part part) const {
    const uintptr_t at = reinterpret_cast<uintptr_t>(begin) + static_cast<uint64_t>(offset);
    const auto shift = static_cast<uint32_t>(at % vector_bytes);
    if (!part.whole()) return load_bytes(at, part);
    if (shift == 0) return load_aligned<Vector>(reinterpret_cast<const std::byte*>(at));
    // Both vectors that have a part of it, if they lie in the run.
    const int64_t low = offset - shift;
    if (low < 0 || static_cast<uint64_t>(low) + 2 * vector_bytes > count) return load_bytes(at, part);
    const auto* from = reinterpret_cast<const std::byte*>(at - shift);
    return shifted(load_aligned<Vector>(from), load_aligned<Vector>(from + vector_bytes), shift);
  }
};

/// A run of bytes that is written in vectors: as they are aligned there, where no element would be cut in two, else from its begin
/// on. Vector i has the bytes from offset(i) on; the first and the last may be partial.
class VectorsOf {
 public:
  EPCCL_DEVICE VectorsOf(std::byte* begin, uint64_t bytes, uint32_t element_bytes)
      : begin_(begin),
        bytes_(bytes),
        before_(misalignment(begin, element_bytes) == 0 ? misalignment(begin) : 0),
        aligned_(misalignment(begin, element_bytes) == 0) {}

  EPCCL_DEVICE uint64_t count() const { return (bytes_ + before_ + vector_bytes - 1) / vector_bytes; }
  /// Of `bytes` at any address: never less than count().
  static constexpr uint64_t most(uint64_t bytes) {
    return bytes == 0 ? 0 : (bytes + 2 * (vector_bytes - 1)) / vector_bytes;
  }
  EPCCL_DEVICE int64_t offset(uint64_t i) const {
    return static_cast<int64_t>(i * vector_bytes) - static_cast<int64_t>(before_);
  }
  EPCCL_DEVICE Part part(uint64_t i) const {
    Part part;
    if (i == 0) part.first = before_;
    const uint64_t left = bytes_ + before_ - i * vector_bytes;
    if (left < vector_bytes) part.last = static_cast<uint32_t>(left);
    return part;
  }
  /// Whether `many` vectors from i on are whole and can be stored at once.
  EPCCL_DEVICE bool whole(uint64_t i, uint64_t many) const {
    return aligned_ && (i > 0 || before_ == 0) && (i + many) * vector_bytes <= bytes_ + before_;
  }
  EPCCL_DEVICE void store_whole(uint64_t i, const Vector& value) const {
    store_aligned(begin_ + offset(i), value);
  }
  EPCCL_DEVICE void store(uint64_t i, const Vector& value) const {
    const Part bytes = part(i);
    if (aligned_ && bytes.whole()) return store_whole(i, value);
    store_bytes(reinterpret_cast<uintptr_t>(begin_) + static_cast<uint64_t>(offset(i)), value, bytes);
  }
  /// Whether a vector can be read or written at once in a run that is at `other` where this one is at its begin.
  EPCCL_DEVICE bool lies_alike(const std::byte* other) const {
    return misalignment(other) == misalignment(begin_);
  }

 private:
  std::byte* begin_;
  uint64_t bytes_;
  uint32_t before_;
  bool aligned_;
};

}  // namespace epccl::device::kernels
