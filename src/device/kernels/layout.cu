// Layouts from routing tables, as kernels.
#include "device/kernels/body/token_streams.hpp"
#include "device/kernels/entry.cuh"
#include "device/kernels/kernel_list.hpp"

namespace epccl::device::kernels {

#define EPCCL_LAYOUT(name, body) EPCCL_KERNEL(name, LayoutParameters, 2, body)
#define EPCCL_TERMS(name, body) EPCCL_KERNEL(name, TermsParameters, 2, body)
#define EPCCL_TOKEN_STREAMS(name, body) EPCCL_KERNEL(name, TokenStreamParameters, 2, body)
#define EPCCL_WEIGHTS(name, body) EPCCL_KERNEL(name, WeightsParameters, 2, body)
#define EPCCL_COUNTERS(name, body) EPCCL_KERNEL(name, CountersParameters, 2, body)
#define EPCCL_TOPK(name, body) EPCCL_KERNEL(name, TopkParameters, 2, body)
EPCCL_LAYOUT_KERNELS(EPCCL_LAYOUT)
EPCCL_TERMS_KERNELS(EPCCL_TERMS)
EPCCL_TOKEN_STREAMS_KERNELS(EPCCL_TOKEN_STREAMS)
EPCCL_WEIGHTS_KERNELS(EPCCL_WEIGHTS)
EPCCL_COUNTERS_KERNELS(EPCCL_COUNTERS)
EPCCL_TOPK_KERNELS(EPCCL_TOPK)

}  // namespace epccl::device::kernels
