// The kernels of a GPU, all loaded at once and early: to load code may wait for everything the GPU does, and what it does may
// be waiting for another rank.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device/cuda/context.hpp"
#include "device/cuda/fewest_blocks.hpp"
#include "device/kernels/launch.hpp"

namespace epccl::device::cuda {

class KernelTable {
 public:
  explicit KernelTable(const Context& context);

  uint32_t multiprocessors() const { return speeds_.multiprocessors; }
  const kernels::Residency& residency() const { return residency_; }
  /// As Device::fewest_blocks().
  uint32_t fewest_blocks(const Demand& demand) const { return cuda::fewest_blocks(speeds_, demand); }
  /// Whether there are any, and why not.
  const Status& status() const { return status_; }

  /// Queues a kernel; the context is current.
  template <class Parameters>
  Status launch(const kernels::Launch<Parameters>& launch, CUstream stream) const {
    if (launch.blocks == 0) return {};
    return start(launch.kernel, launch.blocks, launch.threads, &launch.parameters, stream);
  }
  Status start(const kernels::Kernel& kernel, uint32_t blocks, uint32_t threads, const void* parameters,
               CUstream stream) const;

 private:
  Status load();
  Status load(const kernels::Kernel& kernel, CUmodule module);
  Status refused(kernels::Image image, Status why) const;

  const Context& context_;
  const GpuSpeeds speeds_;
  std::map<std::string, CUfunction, std::less<>> functions_;
  kernels::Residency residency_;
  const Status status_;  // of load(), which fills the maps
};

}  // namespace epccl::device::cuda
