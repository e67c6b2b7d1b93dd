#include "device/host/simd/fp8_kernel.hpp"
#include "device/host/simd/kernels.hpp"
#include "device/host/simd/lanes_portable.hpp"
#include "device/host/simd/reduce_kernel.hpp"
#include "device/host/simd/row_sum_kernel.hpp"

namespace epccl::device {

const Kernels portable_kernels = {sum_row_with<PortableLanes>, quantise_with<PortableLanes>,
                                  dequantise_with<PortableLanes>, reduce_with<PortableLanes>,
                                  &portable_index_lists};

}  // namespace epccl::device
