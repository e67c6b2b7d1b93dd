// Elementwise reductions of buffers: what reducing collectives do with the data of several ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace epccl::device {

/// What the elements of a buffer are; numbered as NCCL's datatypes.
enum class Element : uint8_t {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16,
  float8e4m3,
  float8e5m2,
};
inline constexpr int element_kinds = 12;

constexpr uint64_t bytes_of(Element element) {
  switch (element) {
    case Element::int8:
    case Element::uint8:
    case Element::float8e4m3:
    case Element::float8e5m2:
      return 1;
    case Element::float16:
    case Element::bfloat16:
      return 2;
    case Element::int32:
    case Element::uint32:
    case Element::float32:
      return 4;
    case Element::int64:
    case Element::uint64:
    case Element::float64:
      return 8;
  }
  return 0;
}

/// The first five numbered as NCCL's operations. premul_sum: the sum of inputs multiplied by a scalar.
enum class ReduceOp : uint8_t { sum, prod, max, min, avg, premul_sum };
inline constexpr int reduce_ops = 6;

struct Reduction {
  Element element = Element::float32;
  ReduceOp op = ReduceOp::sum;
  uint64_t scalar_bits = 0;  // premul_sum: the scalar as an `element`, in the low bytes
  int ranks = 1;             // avg: how many inputs there are in all, >= 1
};

/// One operand. Needs no alignment.
struct ReduceSource {
  const std::byte* data = nullptr;
  bool raw = true;  // a rank's own input, which premul_sum and avg still have to scale; else a partial result
};

/// destination[i] = sources[0][i] op sources[1][i] op ..., in this order, for i < elements; at least one source. `final`: the
/// result leaves the library, not to be reduced further. `destination` may be exactly one of the sources, else it must not
/// overlap them.
///
/// Integers: sum, prod and premul_sum wrap. avg wraps as a sum does and is divided at the end (`final`), towards zero.
/// float16, bfloat16 and both float8: computed in float32 and rounded once a call, to nearest, ties to even. float16 and
/// bfloat16 overflow to infinities; float8 becomes the largest finite number, as in NCCL, also where the result is infinite.
/// float32 and float64: computed in their own precision.
/// premul_sum: scalar * input, rounded in the precision of the computation before it is added. avg of floats is a premul_sum
/// by 1 / ranks, as NCCL's: the partial results of float16 cannot overflow where the average does not.
/// max and min return one of the operands: numbers are preferred to NaNs, as by fmax, and -0 is less than +0; so the result
/// depends on neither order nor grouping.
/// A NaN comes out as the one positive quiet NaN (float8: 0x7f). Every path gives the same bits (simd.hpp), in every thread (ieee_floats.hpp).
/// `also`: places that get the same result; each may be exactly one of the sources.
void reduce(const Reduction& reduction, std::span<const ReduceSource> sources, bool final,
            std::byte* destination, size_t elements, std::span<std::byte* const> also = {});

}  // namespace epccl::device
