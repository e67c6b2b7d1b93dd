// Dispatch and combine of GPU memory by way of host memory: nothing of the library touches GPU memory but by copies. What comes is what
// comes on the host, bit for bit.
#include <gtest/gtest.h>

#include "gpu_layers.hpp"

namespace epccl::tests {
namespace {

class StagedEp : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  static GpuRun options() {
    return {{GetParam(), {{"EPCCL_COPY_ENGINE", "never"}}, {}}, As::processes, GpuMemoryKind::plain, false};
  }
};

TEST_P(StagedEp, GivesWhatTheRoutingSays) {
  run_random_layers(options());
}

TEST_P(StagedEp, IsTheSameInStaticMode) {
  run_static_layers(options());
}

INSTANTIATE_TEST_SUITE_P(Shapes, StagedEp,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{3}, std::vector<int>{2, 2}));

}  // namespace
}  // namespace epccl::tests
