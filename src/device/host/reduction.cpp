#include "device/host/reduction.hpp"

#include <bit>
#include <cassert>
#include <cstring>

#include "device/host/e5m2.hpp"
#include "device/host/fp16.hpp"
#include "device/host/fp8.hpp"
#include "device/host/ieee_floats.hpp"
#include "device/host/simd/kernels.hpp"

namespace epccl::device {
namespace {

bool is_integer(Element element) {
  return element <= Element::uint64;
}

ReduceCall::Join join_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod:
      return ReduceCall::Join::prod;
    case ReduceOp::max:
      return ReduceCall::Join::max;
    case ReduceOp::min:
      return ReduceCall::Join::min;
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      break;
  }
  return ReduceCall::Join::sum;
}

/// A scalar of the element's type in the precision that is computed in.
uint64_t widened(Element element, uint64_t bits) {
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

uint64_t inverse_bits(Element element, int ranks) {
  if (element == Element::float64) return std::bit_cast<uint64_t>(1 / static_cast<double>(ranks));
  return std::bit_cast<uint32_t>(1 / static_cast<float>(ranks));
}

}  // namespace

void reduce(const Reduction& reduction, std::span<const ReduceSource> sources, bool final,
            std::byte* destination, size_t elements, std::span<std::byte* const> also) {
  assert(!sources.empty());
  const IeeeFloats floats;
  ReduceCall call{.element = reduction.element,
                  .join = join_of(reduction.op),
                  .sources = sources.data(),
                  .source_count = sources.size(),
                  .destination = destination,
                  .elements = elements};
  if (reduction.op == ReduceOp::premul_sum) {
    call.scaled = true;
    call.scale_bits = widened(reduction.element, reduction.scalar_bits);
  } else if (reduction.op == ReduceOp::avg && !is_integer(reduction.element)) {
    call.scaled = true;
    call.scale_bits = inverse_bits(reduction.element, reduction.ranks);
  } else if (reduction.op == ReduceOp::avg && final) {
    call.divisor = static_cast<uint32_t>(reduction.ranks);
  }
  kernels().reduce(call);
  for (std::byte* each : also) std::memcpy(each, destination, elements * bytes_of(reduction.element));
}

}  // namespace epccl::device
