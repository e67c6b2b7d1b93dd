// A rank of a job on machines whose GPUs and whose NCCL are test doubles.
#pragma once

#include "asked.hpp"
#include "fake_cuda.hpp"

namespace nccl_programs {

/// Memory of the double's GPU.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes, bool pinned = false) : memory_(fake_cuda_allocate(bytes, pinned)) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { fake_cuda_free(memory_); }
  void* get() const { return memory_; }

 private:
  void* memory_;
};

}  // namespace nccl_programs
