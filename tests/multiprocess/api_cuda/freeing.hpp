// A program that keeps the driver from others.
#pragma once

#include <thread>

#include "fake_driver.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {

/// Frees memory in a thread of its own, which first waits for the whole GPU (FAKE_CUDA_CONTEXT_LOCK).
class Freeing {
 public:
  Freeing() {
    EXPECT_EQ(cuCtxGetCurrent(&context_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&memory_, 100), CUDA_SUCCESS);
    fake_cuda_forget_calls();
    thread_ = std::thread([this] {
      MUST(cuCtxSetCurrent(context_));
      MUST(cuMemFree(memory_));
    });
    while (fake_cuda_calls("alone") == 0) std::this_thread::yield();
  }
  Freeing(const Freeing&) = delete;
  Freeing& operator=(const Freeing&) = delete;
  ~Freeing() { thread_.join(); }

 private:
  CUcontext context_ = nullptr;
  CUdeviceptr memory_ = 0;
  std::thread thread_;
};

}  // namespace epccl::tests
