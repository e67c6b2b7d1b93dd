// Host memory in which queues post and wait: registered with the driver, looked up by address.
#pragma once

#include <map>
#include <shared_mutex>

#include "device/cuda/context.hpp"

namespace epccl::device::cuda {

class SignalWords {
 public:
  explicit SignalWords(const Context& context) : context_(context) {}

  Status add(void* memory, uint64_t bytes);
  void remove(void* memory);
  /// Where the GPU finds the word.
  Result<CUdeviceptr> find(const void* word) const;

 private:
  struct Range {
    uint64_t end = 0;
    CUdeviceptr device = 0;  // of the first byte
    int uses = 0;
    bool is_registered_here = false;  // else somebody else did, and undoes it
  };

  const Context& context_;
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Range> ranges_;      // by first page
  std::map<uint64_t, uint64_t> started_;  // first page, by the address that was given
};

}  // namespace epccl::device::cuda
