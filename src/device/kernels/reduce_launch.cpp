#include <algorithm>
#include <cassert>

#include "device/host/scalar_bits.hpp"
#include "device/kernels/kernel_list.hpp"
#include "device/kernels/launch.hpp"

namespace epccl::device::kernels {
namespace {

// Bytes of the result that a warp makes at once, at most; a block has some warps.
constexpr uint64_t block_bytes = uint64_t{4} * 16 * block_threads;

bool is_integer(Element element) {
  return element <= Element::uint64;
}

const char* sum_kernel(Element element) {
  switch (element) {
    case Element::int8:
    case Element::uint8:
      return "epccl_reduce_sum_int8";
    case Element::int32:
    case Element::uint32:
      return "epccl_reduce_sum_int32";
    case Element::int64:
    case Element::uint64:
      return "epccl_reduce_sum_int64";
    case Element::float16:
      return "epccl_reduce_sum_float16";
    case Element::float32:
      return "epccl_reduce_sum_float32";
    case Element::float64:
      return "epccl_reduce_sum_float64";
    case Element::bfloat16:
      return "epccl_reduce_sum_bfloat16";
    case Element::float8e4m3:
      return "epccl_reduce_sum_float8e4m3";
    case Element::float8e5m2:
      return "epccl_reduce_sum_float8e5m2";
  }
  return nullptr;
}

const char* product_kernel(Element element) {
  switch (element) {
    case Element::int8:
    case Element::uint8:
      return "epccl_reduce_prod_int8";
    case Element::int32:
    case Element::uint32:
      return "epccl_reduce_prod_int32";
    case Element::int64:
    case Element::uint64:
      return "epccl_reduce_prod_int64";
    case Element::float16:
      return "epccl_reduce_prod_float16";
    case Element::float32:
      return "epccl_reduce_prod_float32";
    case Element::float64:
      return "epccl_reduce_prod_float64";
    case Element::bfloat16:
      return "epccl_reduce_prod_bfloat16";
    case Element::float8e4m3:
      return "epccl_reduce_prod_float8e4m3";
    case Element::float8e5m2:
      return "epccl_reduce_prod_float8e5m2";
  }
  return nullptr;
}

const char* order_kernel(Element element) {
  switch (element) {
    case Element::int8:
      return "epccl_reduce_order_int8";
    case Element::uint8:
      return "epccl_reduce_order_uint8";
    case Element::int32:
      return "epccl_reduce_order_int32";
    case Element::uint32:
      return "epccl_reduce_order_uint32";
    case Element::int64:
      return "epccl_reduce_order_int64";
    case Element::uint64:
      return "epccl_reduce_order_uint64";
    case Element::float8e4m3:
    case Element::float8e5m2:
      return "epccl_reduce_order_float8";
    case Element::float16:
    case Element::bfloat16:
      return "epccl_reduce_order_half";
    case Element::float32:
      return "epccl_reduce_order_float32";
    case Element::float64:
      return "epccl_reduce_order_float64";
  }
  return nullptr;
}

const char* kernel_name(const Reduction& reduction) {
  if (reduction.op == ReduceOp::max || reduction.op == ReduceOp::min) return order_kernel(reduction.element);
  return reduction.op == ReduceOp::prod ? product_kernel(reduction.element) : sum_kernel(reduction.element);
}

void set_order(Element element, bool smallest, ReduceParameters& parameters) {
  parameters.flip = smallest ? ~uint64_t{0} : 0;
  switch (element) {
    case Element::float16:
      parameters.infinity = 0x7c00, parameters.nan = 0x7e00;
      break;
    case Element::bfloat16:
      parameters.infinity = 0x7f80, parameters.nan = 0x7fc0;
      break;
    case Element::float8e4m3:
      parameters.infinity = 0x7e, parameters.nan = 0x7f;
      break;
    case Element::float8e5m2:
      parameters.infinity = 0x7c, parameters.nan = 0x7f;
      break;
    case Element::float64:
      parameters.infinity = 0x7ff0000000000000, parameters.nan = 0x7ff8000000000000;
      break;
    default:
      parameters.infinity = 0x7f800000, parameters.nan = 0x7fc00000;
  }
}

/// Whether raw sources are multiplied, and by what.
bool set_scale(const Reduction& reduction, ReduceParameters& parameters) {
  if (reduction.op == ReduceOp::premul_sum) {
    parameters.scale_bits = widened_scalar(reduction.element, reduction.scalar_bits);
    return true;
  }
  if (reduction.op != ReduceOp::avg || is_integer(reduction.element)) return false;
  parameters.scale_bits = inverse_bits(reduction.element, reduction.ranks);
  return true;
}

}  // namespace

Launch<ReduceParameters> reduce_launch(const Reduction& reduction, std::span<const ReduceSource> sources,
                                       bool final, std::byte* destination, uint64_t elements,
                                       const Grid& grid, const void* device_scalar,
                                       std::span<std::byte* const> also) {
  assert(!sources.empty() && sources.size() <= max_reduce_sources && also.size() <= max_reduce_sources);
  Launch<ReduceParameters> launch;
  launch.kernel = {kernel_name(reduction), Image::reduce};
  ReduceParameters& parameters = launch.parameters;
  parameters.destination = destination;
  parameters.bytes = elements * bytes_of(reduction.element);
  parameters.source_count = static_cast<uint32_t>(sources.size());
  parameters.is_signed = reduction.element == Element::int8 || reduction.element == Element::int32 ||
                         reduction.element == Element::int64;
  set_order(reduction.element, reduction.op == ReduceOp::min, parameters);
  const bool scaled = set_scale(reduction, parameters);
  if (reduction.op == ReduceOp::premul_sum)
    parameters.device_scalar = static_cast<const std::byte*>(device_scalar);
  if (reduction.op == ReduceOp::avg && is_integer(reduction.element) && final)
    parameters.divisor = static_cast<uint32_t>(reduction.ranks);
  for (size_t s = 0; s < sources.size(); ++s) {
    parameters.sources[s] = sources[s].data;
    if (scaled && sources[s].raw) parameters.scaled |= uint64_t{1} << s;
  }
  std::ranges::copy(also, parameters.also);
  parameters.also_count = static_cast<uint32_t>(also.size());
  launch.blocks = grid.blocks((parameters.bytes + block_bytes - 1) / block_bytes);
  launch.least_bytes = parameters.bytes * (sources.size() + 1 + also.size());
  return launch;
}

}  // namespace epccl::device::kernels
