#include "device/host/reduction.hpp"

#include <cassert>
#include <cstring>

#include "device/host/ieee_floats.hpp"
#include "device/host/scalar_bits.hpp"
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
    call.scale_bits = widened_scalar(reduction.element, reduction.scalar_bits);
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
