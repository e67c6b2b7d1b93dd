// The reductions as kernels.
#include "device/kernels/body/reduce.hpp"
#include "device/kernels/entry.cuh"
#include "device/kernels/kernel_list.hpp"

namespace epccl::device::kernels {

#define EPCCL_ENTRY(name, Join) EPCCL_KERNEL(name, ReduceParameters, 2, (reduce_body<EPCCL_BARE Join>))
EPCCL_REDUCE_KERNELS(EPCCL_ENTRY)

}  // namespace epccl::device::kernels
