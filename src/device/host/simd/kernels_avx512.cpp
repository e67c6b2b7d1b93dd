#if defined(__x86_64__)
#include "device/host/simd/fp8_kernel.hpp"
#include "device/host/simd/kernels.hpp"
#include "device/host/simd/lanes_avx512.hpp"
#include "device/host/simd/reduce_kernel.hpp"
#include "device/host/simd/row_sum_kernel.hpp"

namespace epccl::device {

const Kernels avx512_kernels = {sum_row_with<Avx512Lanes>, quantise_with<Avx512Lanes>,
                                dequantise_with<Avx512Lanes>, reduce_with<Avx512Lanes>, &avx512_index_lists};

}  // namespace epccl::device
#endif
