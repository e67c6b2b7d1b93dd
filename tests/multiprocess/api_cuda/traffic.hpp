// What a rank's device moves through its memory in calls of one size, as the double counts it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>

#include "../api/ranks.hpp"
#include "fake_driver.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {

/// What one rank's device did in a call.
struct Moved {
  long kernels = 0;  // bytes that they read and wrote
  long copied = 0;   // bytes, by engines; each is read and written
  long launches = 0;
  friend bool operator==(const Moved&, const Moved&) = default;
};
inline void PrintTo(const Moved& moved, std::ostream* out) {
  *out << fmt::format("{} bytes of kernels in {} launches, {} bytes copied", moved.kernels, moved.launches,
                      moved.copied);
}

inline constexpr long mebibyte = 1 << 20;

/// Of each call of a rank, on buffers of 4 MiB.
class Traffic {
 public:
  static constexpr long bytes = 4 * mebibyte;

  Traffic(const RankContext& context, epcclComm_t comm, const GpuRank& gpu)
      : ranks_(static_cast<size_t>(context.ranks)),
        comm_(comm),
        gpu_(gpu),
        input_(gpu, count),
        output_(gpu, count) {}

  Moved allreduce() {
    return moved_by([&] {
      return epcclAllReduce(input_.data(), output_.data(), count, epcclFloat32, epcclSum, comm_,
                            gpu_.as_epccl());
    });
  }
  Moved reduce(int root) {
    return moved_by([&] {
      return epcclReduce(input_.data(), output_.data(), count, epcclFloat32, epcclSum, root, comm_,
                         gpu_.as_epccl());
    });
  }
  Moved reduce_scatter() {
    return moved_by([&] {
      return epcclReduceScatter(input_.data(), output_.data(), count / ranks_, epcclFloat32, epcclSum, comm_,
                                gpu_.as_epccl());
    });
  }
  Moved alltoall() {
    return moved_by([&] {
      return epcclAlltoall(input_.data(), output_.data(), count / ranks_, epcclFloat32, comm_,
                           gpu_.as_epccl());
    });
  }

 private:
  static constexpr size_t count = bytes / sizeof(float);
  template <typename Call>
  Moved moved_by(Call call) {
    EXPECT_EQ(call(), epcclSuccess) << epcclGetLastError(nullptr);  // plans, mappings
    gpu_.wait();
    fake_cuda_forget_calls();
    EXPECT_EQ(call(), epcclSuccess) << epcclGetLastError(nullptr);
    gpu_.wait();
    return {fake_cuda_calls("bytes of kernels"), fake_cuda_calls("bytes inside"),
            fake_cuda_calls("cuLaunchKernel")};
  }

  const size_t ranks_;
  epcclComm_t comm_;
  const GpuRank& gpu_;
  GpuArray<float> input_, output_;
};

}  // namespace epccl::tests
