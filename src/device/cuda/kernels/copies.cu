// Small copies and signals, as a kernel.
#include "device/cuda/kernels/body/copies.hpp"
#include "device/cuda/kernels/entry.cuh"
#include "device/cuda/kernels/kernel_list.hpp"

namespace epccl::device::cuda {

#define EPCCL_COPIES(name, body) EPCCL_KERNEL(name, CopiesParameters, 2, body)
EPCCL_COPIES_KERNELS(EPCCL_COPIES)

}  // namespace epccl::device::cuda
