// A stream of a green context.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

namespace epccl::device::test {

/// Of the primary context of GPU 0, which is current while it lives.
class GreenStream {
 public:
  GreenStream() {
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent(context_), CUDA_SUCCESS);
    auto* green = reinterpret_cast<CUgreenCtx>(this);  // the double takes any
    EXPECT_EQ(cuGreenCtxStreamCreate(&stream_, green, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  }
  GreenStream(const GreenStream&) = delete;
  GreenStream& operator=(const GreenStream&) = delete;
  ~GreenStream() {
    EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS);
    cuCtxPopCurrent(&context_);
  }
  CUstream get() const { return stream_; }

 private:
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace epccl::device::test
