// A program that keeps its stream busy.
#pragma once

#include <atomic>

#include "gpu_rank.hpp"

namespace epccl::tests {

/// Holds a stream of the program's until a test lets it through.
class Gate {
 public:
  Gate() {
    EXPECT_EQ(cuMemHostAlloc(&memory_, sizeof(uint64_t), 0), CUDA_SUCCESS);
    if (memory_ != nullptr)
      std::atomic_ref(*static_cast<uint64_t*>(memory_)).store(0);  // it may have been another gate's
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    open();
    if (keeps_memory()) return;
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

}  // namespace epccl::tests
