// Sums of rows, as kernels.
#include "device/cuda/kernels/body/row_sum.hpp"
#include "device/cuda/kernels/entry.cuh"
#include "device/cuda/kernels/kernel_list.hpp"

namespace epccl::device::cuda {

#define EPCCL_SUM(name, body) EPCCL_KERNEL(name, SumParameters, 2, body)
EPCCL_SUM_KERNELS(EPCCL_SUM)

}  // namespace epccl::device::cuda
