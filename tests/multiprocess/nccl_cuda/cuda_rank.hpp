// A rank of a job on machines whose GPUs and whose NCCL are test doubles.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fake_cuda.hpp"
#include "ranks.hpp"

namespace nccl_programs {

/// Processes, each with one GPU, whose real NCCL is the double.
Job with_gpus(int ranks);

/// What the double was asked since the last time, one call a line: the name less "nccl", then the arguments. Without questions
/// for its version and its error texts. Empty where it was never opened.
std::vector<std::string> asked_of_real();

/// A pointer as the double writes it.
std::string text_of(const void* pointer);

/// The double's communicator that the last of these lines made, as it writes it.
std::string made_in(const std::vector<std::string>& lines);

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
