// The reductions as kernels.
#include "device/cuda/kernels/body/reduce.hpp"
#include "device/cuda/kernels/entry.cuh"
#include "device/cuda/kernels/kernel_list.hpp"

namespace epccl::device::cuda {

#define EPCCL_ENTRY(name, Join) EPCCL_KERNEL(name, ReduceParameters, 2, (reduce_body<EPCCL_BARE Join>))
EPCCL_REDUCE_KERNELS(EPCCL_ENTRY)

}  // namespace epccl::device::cuda
