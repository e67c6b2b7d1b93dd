// What the inputs of a reduction are multiplied by, as bits of a number in the precision that is computed in. Of the host's reductions and of
// kernels: their results are the same.
#pragma once

#include <bit>
#include <cstdint>

#include "device/host/e5m2.hpp"
#include "device/host/fp16.hpp"
#include "device/host/fp8.hpp"
#include "device/host/reduction.hpp"

namespace epccl::device {

/// A scalar of the element's type, for premul_sum.
inline uint64_t widened_scalar(Element element, uint64_t bits) {
  const auto of_float = [](float value) { return uint64_t{std::bit_cast<uint32_t>(value)}; };
  switch (element) {
    case Element::float16:
      return of_float(float_of_float16(static_cast<uint16_t>(bits)));
    case Element::bfloat16:
      return of_float(float_of_bfloat16(static_cast<uint16_t>(bits)));
    case Element::float8e4m3:
      return of_float(float_of_e4m3(static_cast<uint8_t>(bits)));
    case Element::float8e5m2:
      return of_float(float_of_e5m2(static_cast<uint8_t>(bits)));
    default:
      return bits;
  }
}

/// 1 / ranks, for avg of floats.
inline uint64_t inverse_bits(Element element, int ranks) {
  if (element == Element::float64) return std::bit_cast<uint64_t>(1 / static_cast<double>(ranks));
  return std::bit_cast<uint32_t>(1 / static_cast<float>(ranks));
}

}  // namespace epccl::device
