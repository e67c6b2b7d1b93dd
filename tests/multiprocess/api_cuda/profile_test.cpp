// Where the time of calls on GPU memory goes (epccl/profile.h).
#include "epccl/profile.h"

#include "../api/call_times.hpp"
#include "cuda_calls.hpp"

namespace epccl::tests {
namespace {

class CudaProfile : public CudaMemoryCalls {};
INSTANTIATE_TEST_SUITE_P(CopyEngines, CudaProfile,
                         ::testing::Values(Shape{{1}, "auto", "8M"}, Shape{{4}, "always", "8M"},
                                           Shape{{2, 2}, "auto", "2K"}, Shape{{1, 2}, "never", "2K", false}));

TEST_P(CudaProfile, EventsTellWhenCopiesRan) {
  run([](const RankContext& context, epcclComm_t comm, GpuRank& gpu) {
    constexpr size_t count = 5000;
    const auto total = count * static_cast<size_t>(context.ranks);
    const GpuArray<float> input(gpu, std::vector<float>(total, 1.5F)), output(gpu, total);
    const auto call = [&] {
      EXPECT_EQ(epcclAlltoall(input.data(), output.data(), count, epcclFloat32, comm, gpu.as_epccl()),
                epcclSuccess);
    };
    call();
    EXPECT_EQ(times_of(comm).calls, 0U);
    EXPECT_EQ(epcclCommMeasureCalls(comm, 1), epcclSuccess);
    for (int i = 0; i < 3; ++i) call();
    const epcclCallTimes_t times = times_of(comm);
    EXPECT_EQ(times.calls, 3U);
    EXPECT_GT(times.copy, 0);
    EXPECT_EQ(times.kernel, 0);
    // Events are placed on the host's clock as well as a wait for one of them is known, so no sum is checked but this.
    constexpr double rounding = 1e-6;
    for (const double part : {times.signal, times.host}) EXPECT_GE(part, -rounding);
    EXPECT_NEAR(times.kernel + times.copy + times.signal + times.host, times.total, rounding);
    EXPECT_EQ(epcclCommMeasureCalls(comm, 0), epcclSuccess);
    call();
    EXPECT_EQ(times_of(comm).calls, 0U);
    EXPECT_EQ(output.get(), std::vector<float>(total, 1.5F));
  });
}

}  // namespace
}  // namespace epccl::tests
