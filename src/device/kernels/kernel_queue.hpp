// Any kernel on a queue of a CUDA device, for those who do not see CUDA's types: what kernels/launch.hpp makes, queued.
#pragma once

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/kernels/launch.hpp"

namespace epccl::device::kernels {

/// The bounds for launches on this queue: its set_blocks(), its device's multiprocessors. Error: not a queue of a CUDA device.
Result<Grid> grid_of(const Queue& queue);

/// Whether kernels can run on this queue.
bool has_kernels(const Queue& queue);

/// As a method of Queue, for one kernel with one parameter, which is copied. Error: as there; no queue of a CUDA device that may
/// compute; the build has no kernels.
Status queue_kernel(Queue& queue, const Kernel& kernel, uint32_t blocks, uint32_t threads,
                    const void* parameters);

/// Nothing where the launch has no blocks.
template <class Parameters>
Status queue_kernel(Queue& queue, const Launch<Parameters>& launch) {
  if (launch.blocks == 0) return {};
  return queue_kernel(queue, launch.kernel, launch.blocks, launch.threads, &launch.parameters);
}

}  // namespace epccl::device::kernels
