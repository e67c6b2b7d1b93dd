#include "device/kernels/kernel_list.hpp"
#include "device/kernels/launch.hpp"

namespace epccl::device::kernels {

std::span<const Kernel> all_kernels() {
#define EPCCL_OF_REDUCE(kernel, body) {#kernel, Image::reduce},
#define EPCCL_OF_ROWS(kernel, body) {#kernel, Image::rows},
#define EPCCL_OF_SUMS(kernel, body) {#kernel, Image::sums},
#define EPCCL_OF_LAYOUT(kernel, body) {#kernel, Image::layout},
#define EPCCL_OF_COPIES(kernel, body) {#kernel, Image::copies},
#define EPCCL_OF_SIGNALS(kernel, body) {#kernel, Image::signals},
  // clang-format off
  static constexpr Kernel kernels[] = {
      EPCCL_REDUCE_KERNELS(EPCCL_OF_REDUCE)
      EPCCL_MOVE_KERNELS(EPCCL_OF_ROWS)
      EPCCL_SPREAD_KERNELS(EPCCL_OF_ROWS)
      EPCCL_SUM_KERNELS(EPCCL_OF_SUMS)
      EPCCL_LAYOUT_KERNELS(EPCCL_OF_LAYOUT)
      EPCCL_TERMS_KERNELS(EPCCL_OF_LAYOUT)
      EPCCL_TOKEN_STREAMS_KERNELS(EPCCL_OF_LAYOUT)
      EPCCL_WEIGHTS_KERNELS(EPCCL_OF_LAYOUT)
      EPCCL_COUNTERS_KERNELS(EPCCL_OF_LAYOUT)
      EPCCL_TOPK_KERNELS(EPCCL_OF_LAYOUT)
      EPCCL_COPIES_KERNELS(EPCCL_OF_COPIES)
      EPCCL_SIGNALS_KERNELS(EPCCL_OF_SIGNALS)
      EPCCL_HOST_CALL_KERNELS(EPCCL_OF_SIGNALS)
      EPCCL_WORDS_KERNELS(EPCCL_OF_SIGNALS)
  };
  // clang-format on
  return kernels;
}

}  // namespace epccl::device::kernels
