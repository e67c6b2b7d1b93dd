// Sums of rows, as kernels.
#include "device/kernels/body/row_sum.hpp"
#include "device/kernels/entry.cuh"
#include "device/kernels/kernel_list.hpp"

namespace epccl::device::kernels {

#define EPCCL_SUM(name, body) EPCCL_KERNEL(name, SumParameters, 2, body)
EPCCL_SUM_KERNELS(EPCCL_SUM)

}  // namespace epccl::device::kernels
