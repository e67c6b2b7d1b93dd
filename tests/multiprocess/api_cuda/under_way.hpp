// Calls that are under way, and what a program does meanwhile.
#pragma once

#include <unistd.h>

#include <chrono>

#include "gpu_rank.hpp"

namespace epccl::tests {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

inline bool is_busy(const GpuRank& gpu) {
  return cuStreamQuery(gpu.stream()) == CUDA_ERROR_NOT_READY;
}

/// Of the calls that are under way.
inline epcclResult_t end_of(epcclComm_t comm) {
  while (epcclCommQuery(comm) == epcclInProgress) usleep(100);
  epcclResult_t result = epcclInternalError;
  EXPECT_EQ(epcclCommGetAsyncError(comm, &result), epcclSuccess);
  return result;
}

/// What waits for the GPU in the driver, and keeps others out.
inline void free_some_memory() {
  CUdeviceptr memory = 0;
  MUST(cuMemAlloc(&memory, 4096));
  MUST(cuMemFree(memory));
}

}  // namespace epccl::tests
