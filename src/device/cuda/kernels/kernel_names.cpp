#include "device/cuda/kernels/kernel_list.hpp"
#include "device/cuda/kernels/launch.hpp"

namespace epccl::device::cuda {

std::span<const Kernel> all_kernels() {
#define EPCCL_NAMED_REDUCE(name, join) {#name, Image::reduce},
  static constexpr Kernel kernels[] = {EPCCL_REDUCE_KERNELS(EPCCL_NAMED_REDUCE)};
  return kernels;
}

}  // namespace epccl::device::cuda
