// Programs that keep a GPU, and the driver, from others.
#pragma once

#include <atomic>
#include <thread>

#include "fake_driver.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {

/// Holds a stream of the program's until a test lets it through.
class Gate {
 public:
  Gate() { EXPECT_EQ(cuMemHostAlloc(&memory_, sizeof(uint64_t), 0), CUDA_SUCCESS); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    open();
    EXPECT_EQ(cuMemFreeHost(memory_), CUDA_SUCCESS);
  }
  /// What the stream is given from now on waits.
  void close(const GpuRank& gpu) const {
    CUdeviceptr word = 0;
    ASSERT_EQ(cuMemHostGetDevicePointer(&word, memory_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitValue64(gpu.stream(), word, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  }
  void open() const { std::atomic_ref(*static_cast<uint64_t*>(memory_)).store(1); }

 private:
  void* memory_ = nullptr;
};

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
