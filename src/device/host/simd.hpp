// Which vector instructions the host's kernels use. All give the same bits.
#pragma once

#include <cstdint>

namespace epccl::device {

/// Each level includes those before it.
enum class Simd : uint8_t {
  portable,
  avx2,    // and F16C
  avx512,  // F, BW, DQ, VL
};

/// The highest level this machine has.
Simd best_simd();

/// For tests: while one exists, kernels of the process use nothing above `most`. One at a time.
class SimdLimit {
 public:
  explicit SimdLimit(Simd most);
  SimdLimit(const SimdLimit&) = delete;
  SimdLimit& operator=(const SimdLimit&) = delete;
  ~SimdLimit();
};

}  // namespace epccl::device
