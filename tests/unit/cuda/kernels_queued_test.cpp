// What tests/device/kernels_on_gpu.cpp does where the process cannot go on: it ends, so that others go on with the next test.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "../cuda_kernels/launched.hpp"

namespace epccl::device::kernels::testing {
namespace {

TEST(KernelsQueuedDeathTest, EndTheProgramWithTheGpusError) {
  std::mt19937_64 random(1);
  const Launch<MoveParameters> too_wide{{"epccl_move", Image::rows}, 1, 2048, {}, 0};
  EXPECT_DEATH(run(too_wide, random), "epccl_move: cuLaunchKernel on GPU 0: CUDA_ERROR_INVALID_VALUE");
}

TEST(KernelsQueuedDeathTest, EndTheProgramWhereSomethingWasWrittenBehindABuffer) {
  for (const size_t bytes : {1, 32, 33, 64, 1000}) {
    const auto overrun = [bytes](size_t behind) {
      auto buffer = std::make_unique<std::byte[]>(bytes);
      std::byte* volatile hidden = buffer.get();  // from the compiler, which would warn
      hidden[bytes - 1 + behind] = std::byte{1};
    };
    overrun(0);
    EXPECT_DEATH(overrun(1), "written behind a buffer") << bytes;
    EXPECT_DEATH(overrun(30), "written behind a buffer") << bytes;
  }
}

}  // namespace
}  // namespace epccl::device::kernels::testing
