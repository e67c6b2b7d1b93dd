// Dispatch and combine of GPU memory by kernels, from one rank's memory to another's. On the double of the driver the kernels' code
// runs on the host. What comes is what comes on the host, bit for bit.
#include <gtest/gtest.h>

#include "device/kernels/launch.hpp"
#include "gpu_layers.hpp"

namespace epccl::tests {
namespace {

class KernelEp : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  void SetUp() override {
    if (device::kernels::bytes_of(device::kernels::Image::rows).empty())
      GTEST_SKIP() << "built without CUDA kernels";
  }
};

TEST_P(KernelEp, GivesWhatTheRoutingSays) {
  run_random_layers({{GetParam(), {}, {}}});
}

TEST_P(KernelEp, IsTheSameInStaticMode) {
  run_static_layers({{GetParam(), {}, {}}});
}

TEST_P(KernelEp, LeavesPaddingAloneWhereItMayBeAnything) {
  run_padded_layers({{GetParam(), {}, {}}});
}

INSTANTIATE_TEST_SUITE_P(Shapes, KernelEp,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{2}, std::vector<int>{4}));

class KernelEpOfOthers : public KernelEp {};

TEST_P(KernelEpOfOthers, GivesTheSameToThreadsOfOneProcess) {
  run_random_layers({{GetParam(), {}, {}}, As::threads});
  run_static_layers({{GetParam(), {}, {}}, As::threads});
}

// Rows then pass through memory of the library.
TEST_P(KernelEpOfOthers, GivesTheSameInMemoryThatPeersCannotMap) {
  run_random_layers({{GetParam(), {}, {}}, As::processes, GpuMemoryKind::unmappable});
  run_static_layers({{GetParam(), {}, {}}, As::processes, GpuMemoryKind::unmappable});
}

INSTANTIATE_TEST_SUITE_P(Shapes, KernelEpOfOthers, ::testing::Values(std::vector<int>{3}));

// Kernels then make the copies beside them, too.
class KernelEpByCores : public KernelEp {
 protected:
  static GpuRun options(As as = As::processes, GpuMemoryKind memory = GpuMemoryKind::plain) {
    return {{GetParam(), {{"EPCCL_COPY_ENGINE", "never"}}, {}}, as, memory};
  }
};

TEST_P(KernelEpByCores, GivesWhatTheRoutingSays) {
  run_random_layers(options());
}

TEST_P(KernelEpByCores, IsTheSameInStaticMode) {
  run_static_layers(options());
}

TEST_P(KernelEpByCores, GivesTheSameInMemoryThatPeersCannotMap) {
  run_random_layers(options(As::processes, GpuMemoryKind::unmappable));
}

INSTANTIATE_TEST_SUITE_P(Shapes, KernelEpByCores,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{3}, std::vector<int>{2, 2}));

// The host's plan, with the GPU's queues in place of the host's hands: messages leave GPU memory and arrive there.
class KernelEpOfNodes : public KernelEp {
 protected:
  static GpuRun options(GpuMemoryKind memory = GpuMemoryKind::plain) {
    return {{GetParam(), {}, {}}, As::processes, memory};
  }
};

TEST_P(KernelEpOfNodes, GivesWhatTheRoutingSays) {
  run_random_layers(options());
}

TEST_P(KernelEpOfNodes, IsTheSameInStaticMode) {
  run_static_layers(options());
}

// Peers then use memory of the library in its place.
TEST_P(KernelEpOfNodes, GivesTheSameInMemoryThatPeersCannotMap) {
  run_random_layers(options(GpuMemoryKind::unmappable));
}

TEST_P(KernelEpOfNodes, TakesTurnsWithTheHostInStaticMode) {
  GpuRun run = options();
  run.knows_gpu = false;
  run_static_layers_by_turns(run);
}

TEST_P(KernelEpOfNodes, TakesTurnsWithComputeCoresInStaticMode) {
  run_static_layers_by_turns(options());
}

INSTANTIATE_TEST_SUITE_P(Shapes, KernelEpOfNodes,
                         ::testing::Values(std::vector<int>{1, 1}, std::vector<int>{2, 2},
                                           std::vector<int>{1, 2, 1}));

}  // namespace
}  // namespace epccl::tests
