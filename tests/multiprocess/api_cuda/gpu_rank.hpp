// A rank's GPU as a CUDA program uses it: its context, streams, memory. Over the driver, a double in the tests.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../ep_cuda/gpu_memory.hpp"
#include "epccl/epccl.h"

namespace epccl::tests {

#define MUST(call) ASSERT_EQ((call), CUDA_SUCCESS)

/// GPU 0's primary context is the thread's, and a stream; for the length of a scope.
class GpuRank {
 public:
  explicit GpuRank(int ordinal = 0) {
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context_, ordinal), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;
  ~GpuRank() {
    EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS);
    cuCtxPopCurrent(&context_);
  }
  CUstream stream() const { return stream_; }
  epcclStream_t as_epccl() const { return reinterpret_cast<epcclStream_t>(stream_); }
  void wait() const { EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS); }

 private:
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

/// Elements in GPU memory, as cudaMalloc gives it.
template <typename T>
class GpuArray {
 public:
  GpuArray(const GpuRank& gpu, size_t count) : gpu_(gpu), count_(count) {
    EXPECT_EQ(cuMemAlloc(&data_, std::max<size_t>(count, 1) * sizeof(T)), CUDA_SUCCESS);
  }
  GpuArray(const GpuRank& gpu, const std::vector<T>& values) : GpuArray(gpu, values.size()) {
    put(values);
    EXPECT_EQ(cuStreamSynchronize(gpu.stream()), CUDA_SUCCESS);
  }
  GpuArray(const GpuArray&) = delete;
  GpuArray& operator=(const GpuArray&) = delete;
  ~GpuArray() {
    if (keeps_memory()) return;
    EXPECT_EQ(cuMemFree(data_), CUDA_SUCCESS);
  }
  T* data() const { return reinterpret_cast<T*>(data_); }

  // In the stream's order; the vector must stay. No call of other ranks holds the stream: a copy of pageable memory could wait in the
  // driver, where other ranks' threads need it.
  void put(const std::vector<T>& values) {
    EXPECT_EQ(cuMemcpyAsync(data_, reinterpret_cast<CUdeviceptr>(values.data()), values.size() * sizeof(T),
                            gpu_.stream()),
              CUDA_SUCCESS);
  }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    gpu_.wait();  // before it is copied, as with put()
    EXPECT_EQ(
        cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(values.data()), data_, count_ * sizeof(T), gpu_.stream()),
        CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(gpu_.stream()), CUDA_SUCCESS);
    return values;
  }

 private:
  const GpuRank& gpu_;
  const size_t count_;
  CUdeviceptr data_ = 0;
};

}  // namespace epccl::tests
