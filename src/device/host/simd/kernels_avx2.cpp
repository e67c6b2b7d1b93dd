#if defined(__x86_64__)
#include "device/host/simd/fp8_kernel.hpp"
#include "device/host/simd/kernels.hpp"
#include "device/host/simd/lanes_avx2.hpp"
#include "device/host/simd/reduce_kernel.hpp"
#include "device/host/simd/row_sum_kernel.hpp"

namespace epccl::device {

const Kernels avx2_kernels = {sum_row_with<Avx2Lanes>, quantise_with<Avx2Lanes>, dequantise_with<Avx2Lanes>,
                              reduce_with<Avx2Lanes>, &avx2_index_lists};

}  // namespace epccl::device
#endif
