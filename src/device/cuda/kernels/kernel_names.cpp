#include "device/cuda/kernels/kernel_list.hpp"
#include "device/cuda/kernels/launch.hpp"

namespace epccl::device::cuda {

std::span<const Kernel> all_kernels() {
#define EPCCL_OF_REDUCE(kernel, body) {#kernel, Image::reduce},
#define EPCCL_OF_ROWS(kernel, body) {#kernel, Image::rows},
#define EPCCL_OF_SUMS(kernel, body) {#kernel, Image::sums},
  static constexpr Kernel kernels[] = {EPCCL_REDUCE_KERNELS(EPCCL_OF_REDUCE) EPCCL_MOVE_KERNELS(
      EPCCL_OF_ROWS) EPCCL_SPREAD_KERNELS(EPCCL_OF_ROWS) EPCCL_SUM_KERNELS(EPCCL_OF_SUMS)};
  return kernels;
}

}  // namespace epccl::device::cuda
