// A rank of a job on machines whose GPUs and whose NCCL are test doubles.
#pragma once

#include "asked.hpp"
#include "fake_cuda.hpp"

namespace nccl_programs {

// Of nccl.h, as its stand-in has no constants.
constexpr int NCCL_SPLIT_NOCOLOR = -1, NCCL_SHRINK_DEFAULT = 0;

/// The double asks it for nothing.
inline cudaStream_t cuda_stream() {
  return reinterpret_cast<cudaStream_t>(0xabc0);
}

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
