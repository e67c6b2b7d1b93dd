// A rank whose GPU fails, for good.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "../api/ranks.hpp"
#include "fake_driver.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {

/// Rank 0 sends rank 1 that many bytes, whose GPU cannot copy them: both are told, and can end.
inline void expect_a_message_to_end_with_an_error_of_the_receivers_gpu(const RankContext& context,
                                                                       size_t bytes) {
  GpuRank gpu;
  epcclComm_t comm = nullptr;
  ASSERT_EQ(epcclCommInitRank(&comm, context.ranks, context.id, context.rank), epcclSuccess);
  const GpuArray<uint8_t> data(gpu, bytes);
  if (context.rank == 1) fake_cuda_set("copy_error", CUDA_ERROR_ILLEGAL_ADDRESS);
  ASSERT_EQ(context.rank == 0 ? epcclSend(data.data(), bytes, epcclUint8, 1, comm, gpu.as_epccl())
                              : epcclRecv(data.data(), bytes, epcclUint8, 0, comm, gpu.as_epccl()),
            epcclSuccess);
  epcclResult_t failure = epcclSuccess;
  while (failure == epcclSuccess) ASSERT_EQ(epcclCommGetAsyncError(comm, &failure), epcclSuccess);
  if (context.rank == 0) gpu.wait();
  EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
  if (context.rank == 1) _exit(::testing::Test::HasFailure());  // the GPU's context is lost
}

}  // namespace epccl::tests
