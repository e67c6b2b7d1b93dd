// Small copies and signals, as a kernel.
#include "device/kernels/body/copies.hpp"
#include "device/kernels/entry.cuh"
#include "device/kernels/kernel_list.hpp"

namespace epccl::device::kernels {

#define EPCCL_COPIES(name, body) EPCCL_KERNEL(name, CopiesParameters, 2, body)
EPCCL_COPIES_KERNELS(EPCCL_COPIES)

}  // namespace epccl::device::kernels
