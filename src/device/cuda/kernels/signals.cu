// Posts and waits of a graph's run, as a kernel.
#include "device/cuda/kernels/body/signals.hpp"
#include "device/cuda/kernels/entry.cuh"
#include "device/cuda/kernels/kernel_list.hpp"

namespace epccl::device::cuda {

#define EPCCL_SIGNALS(name, body) EPCCL_KERNEL(name, SignalParameters, body)
EPCCL_SIGNALS_KERNELS(EPCCL_SIGNALS)

}  // namespace epccl::device::cuda
