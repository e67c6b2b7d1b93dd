// Host memory in which queues post and wait: registered with the driver, looked up by address.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <shared_mutex>

#include "device/cuda/context.hpp"

namespace epccl::device::cuda {

class SignalWords {
 public:
  explicit SignalWords(const Context& context) : context_(context) {}

  Status add(void* memory, uint64_t bytes);
  /// `mapping`: as of Device::hide_words().
  void remove(void* memory, std::shared_ptr<const void> mapping);
  /// Where the GPU finds the word.
  Result<CUdeviceptr> find(const void* word) const;

 private:
  struct Range {
    uint64_t end = 0;
    CUdeviceptr device = 0;  // of the first byte
    int uses = 0;
    bool is_registered_here = false;  // else somebody else did, and undoes it
    bool is_changing = false;         // a thread is in the driver with it
  };

  Result<Range> register_pages(uint64_t first, uint64_t end) const;
  void unregister(uint64_t first);

  const Context& context_;
  // Queues look words up while they signal: it is not held while the driver is called, which may wait for them.
  mutable std::shared_mutex mutex_;
  std::condition_variable_any changed_;
  std::map<uint64_t, Range> ranges_;      // by first page
  std::map<uint64_t, uint64_t> started_;  // first page, by the address that was given
};

}  // namespace epccl::device::cuda
