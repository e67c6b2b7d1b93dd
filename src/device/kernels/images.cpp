// The fatbins as they were compiled, in the library's read-only data.
#include "device/kernels/launch.hpp"

#ifdef EPCCL_CUDA_KERNELS

// With -flto this text is assembled apart from the code that names its labels, so they are known beyond their file; not beyond
// the library.
#define EPCCL_IMAGE(name)                                                                \
  asm(".section .rodata, \"a\"\n"                                                        \
      ".globl epccl_image_" #name ", epccl_image_" #name                                 \
      "_end\n"                                                                           \
      ".hidden epccl_image_" #name ", epccl_image_" #name                                \
      "_end\n"                                                                           \
      ".balign 16\n"                                                                     \
      "epccl_image_" #name                                                               \
      ":\n"                                                                              \
      ".incbin \"" EPCCL_CUDA_KERNELS "/" #name                                          \
      ".fatbin\"\n"                                                                      \
      "epccl_image_" #name                                                               \
      "_end:\n"                                                                          \
      ".previous\n");                                                                    \
  extern "C" __attribute__((visibility("hidden"))) const std::byte epccl_image_##name[]; \
  extern "C" __attribute__((visibility("hidden"))) const std::byte epccl_image_##name##_end[];

EPCCL_IMAGE(reduce)
EPCCL_IMAGE(rows)
EPCCL_IMAGE(sums)
EPCCL_IMAGE(layout)
EPCCL_IMAGE(copies)
EPCCL_IMAGE(signals)

#endif

namespace epccl::device::kernels {

std::span<const std::byte> bytes_of([[maybe_unused]] Image image) {
#ifdef EPCCL_CUDA_KERNELS
  switch (image) {
    case Image::reduce:
      return {epccl_image_reduce, epccl_image_reduce_end};
    case Image::rows:
      return {epccl_image_rows, epccl_image_rows_end};
    case Image::sums:
      return {epccl_image_sums, epccl_image_sums_end};
    case Image::layout:
      return {epccl_image_layout, epccl_image_layout_end};
    case Image::copies:
      return {epccl_image_copies, epccl_image_copies_end};
    case Image::signals:
      return {epccl_image_signals, epccl_image_signals_end};
  }
#endif
  return {};
}

}  // namespace epccl::device::kernels
