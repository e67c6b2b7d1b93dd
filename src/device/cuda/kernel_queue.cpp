#include "device/kernels/kernel_queue.hpp"

#include "device/cuda/queue.hpp"

namespace epccl::device::kernels {
namespace {

Status not_cuda() {
  return {Code::invalid_usage, "a CUDA kernel was to run on a queue of another device"};
}

}  // namespace

Result<Grid> grid_of(const Queue& queue) {
  const auto* stream = dynamic_cast<const cuda::StreamQueue*>(&queue);
  if (stream == nullptr) return not_cuda();
  return stream->grid();
}

bool has_kernels(const Queue& queue) {
  const auto* stream = dynamic_cast<const cuda::StreamQueue*>(&queue);
  return stream != nullptr && stream->has_kernels();
}

Status queue_kernel(Queue& queue, const Kernel& kernel, uint32_t blocks, uint32_t threads,
                    const void* parameters) {
  auto* stream = dynamic_cast<cuda::StreamQueue*>(&queue);
  if (stream == nullptr) return not_cuda();
  return stream->launch(kernel, blocks, threads, parameters);
}

}  // namespace epccl::device::kernels
