// Rows by list, as kernels.
#include "device/kernels/body/quantise.hpp"
#include "device/kernels/entry.cuh"
#include "device/kernels/kernel_list.hpp"

namespace epccl::device::kernels {

#define EPCCL_MOVE(name, body) EPCCL_KERNEL(name, MoveParameters, 4, body)
#define EPCCL_SPREAD(name, body) EPCCL_KERNEL(name, SpreadParameters, 4, body)
EPCCL_MOVE_KERNELS(EPCCL_MOVE)
EPCCL_SPREAD_KERNELS(EPCCL_SPREAD)

}  // namespace epccl::device::kernels
