// What kernels are given: one structure each, by value. Plain data, the same for the compilers of both sides.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epccl::device::cuda {

/// What a launch may pass to a kernel.
inline constexpr size_t most_parameter_bytes = 4096;

// --- reduce ---

inline constexpr uint32_t max_reduce_sources = 64;

struct ReduceParameters {
  const std::byte* sources[max_reduce_sources] = {};
  std::byte* destination = nullptr;  // may be one of the sources
  uint64_t bytes = 0;
  uint64_t scaled = 0;  // a bit for each source that is multiplied first
  uint64_t scale_bits =
      0;  // by this: a float64 for float64, a float32 for other floats, else an integer of the type
  // max, min: keys.
  uint64_t flip = 0;      // all bits for min
  uint64_t infinity = 0;  // floats: the bits above which a magnitude is a NaN,
  uint64_t nan = 0;       // and the NaN that is returned
  uint32_t source_count = 0;
  uint32_t divisor = 1;  // integers: the result is divided by it
  uint32_t is_signed = 0;
};

static_assert(sizeof(ReduceParameters) <= most_parameter_bytes);

}  // namespace epccl::device::cuda
