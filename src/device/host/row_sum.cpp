#include "device/host/row_sum.hpp"

#include "device/host/ieee_floats.hpp"
#include "device/host/simd/kernels.hpp"

namespace epccl::device {

void sum_row(RowType type, std::byte* destination, std::span<const SumTerm> terms, size_t elements) {
  const IeeeFloats floats;
  kernels().sum_row(type, destination, terms.data(), terms.size(), elements);
}

}  // namespace epccl::device
