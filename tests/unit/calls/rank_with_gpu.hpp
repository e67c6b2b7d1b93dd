// Rank 0 of a node of two, with the double's GPU; the other rank is the test's.
#pragma once

#include "../cuda/gpu.hpp"
#include "../shm/node.hpp"
#include "control_line.hpp"
#include "runtime/engines/kernel_calls.hpp"

namespace epccl::runtime {

class RankWithGpu : public ::testing::Test {
 protected:
  const topology::Cluster cluster_ = topology::Cluster::uniform(1, 2);
  transports::Node node_{2};
  ControlLine line_;
  FailureMonitor monitor_{line_};
};

class RankWithKernels : public RankWithGpu {
 protected:
  RankWithKernels() {
    EXPECT_OK(engines_.prepare());
    EXPECT_OK(calls_.prepare());
  }

  Executor executor_{cluster_, 0, node_[0], nullptr, monitor_, {}, {}};
  CopyEngines engines_{device::test::gpu(), cluster_, 0, node_[0], monitor_, executor_, {}};
  KernelCalls calls_{device::test::gpu(), cluster_, 0, node_[0], monitor_, executor_, engines_};
};

}  // namespace epccl::runtime
