#include "device/host/fp8.hpp"

#include "device/host/ieee_floats.hpp"
#include "device/host/simd/kernels.hpp"

namespace epccl::device {

void quantise_e4m3(RowType type, const std::byte* source, size_t elements, std::byte* values,
                   std::byte* scales) {
  const IeeeFloats floats;
  kernels().quantise_e4m3(type, source, elements, values, scales);
}

void dequantise_e4m3(const std::byte* values, const std::byte* scales, size_t elements, RowType type,
                     std::byte* destination) {
  const IeeeFloats floats;
  kernels().dequantise_e4m3(type, values, scales, elements, destination);
}

}  // namespace epccl::device
