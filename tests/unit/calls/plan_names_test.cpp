// Plans are remembered by all that they are built from, whatever a caller says that the call is called. (Programs of engines go by that.)
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "../shm/node.hpp"
#include "control_line.hpp"
#include "runtime/comm/alltoall.hpp"
#include "runtime/comm/collectives.hpp"

namespace epccl::runtime {
namespace {

/// Of the only rank there is.
class PlanNames : public ::testing::Test {
 protected:
  /// Of as many bytes, by a call that is called the same each time.
  template <typename Run>
  static void expect_all_moved(size_t bytes, const Run& run) {
    std::vector<std::byte> from(bytes, std::byte{7}), to(bytes);
    const Status status = run(from.data(), to.data());
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(to, from) << bytes << " bytes";
  }

  const topology::Cluster cluster_ = topology::Cluster::uniform(1, 1);
  transports::Node node_{1};
  ControlLine line_;
  FailureMonitor monitor_{line_};
  Executor executor_{cluster_, 0, node_[0], nullptr, monitor_, {}, {}};
  CopyEngines engines_{device::host_device(), cluster_, 0, node_[0], monitor_, executor_, {}};
  const CommConfig config_;
};

TEST_F(PlanNames, OfAnAlltoallHaveItsBytes) {
  AlltoallRunner runner(cluster_, 0, config_, {}, executor_, engines_);
  for (const size_t bytes : {8, 64, 8})
    expect_all_moved(bytes, [&](const std::byte* from, std::byte* to) {
      return runner.alltoall({.input = from, .output = to, .block_bytes = bytes});
    });
}

TEST_F(PlanNames, OfOtherCollectivesHaveTheirBytes) {
  CollectiveRunner runner(cluster_, 0, config_, {}, executor_, engines_);
  for (const size_t bytes : {8, 64, 8})
    expect_all_moved(bytes, [&](const std::byte* from, std::byte* to) {
      CollectiveCall call;
      call.what = {algorithms::Collective::allgather, bytes};
      call.input = from;
      call.output = to;
      return runner.run(call);
    });
}

}  // namespace
}  // namespace epccl::runtime
