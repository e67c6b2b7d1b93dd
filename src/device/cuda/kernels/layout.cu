// Layouts from routing tables, as kernels.
#include "device/cuda/kernels/body/layout.hpp"
#include "device/cuda/kernels/entry.cuh"
#include "device/cuda/kernels/kernel_list.hpp"

namespace epccl::device::cuda {

#define EPCCL_LAYOUT(name, body) EPCCL_KERNEL(name, LayoutParameters, body)
#define EPCCL_TERMS(name, body) EPCCL_KERNEL(name, TermsParameters, body)
#define EPCCL_WEIGHTS(name, body) EPCCL_KERNEL(name, WeightsParameters, body)
EPCCL_LAYOUT_KERNELS(EPCCL_LAYOUT)
EPCCL_TERMS_KERNELS(EPCCL_TERMS)
EPCCL_WEIGHTS_KERNELS(EPCCL_WEIGHTS)

}  // namespace epccl::device::cuda
