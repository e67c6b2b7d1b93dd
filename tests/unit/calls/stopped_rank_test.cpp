// A rank that was stopped itself, as all of a suspended job are, does not take that time for its peers' silence.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>

#include "../shm/node.hpp"
#include "base/clock.hpp"
#include "control_line.hpp"
#include "runtime/executor/waiter.hpp"

namespace epccl::runtime {
namespace {

class StoppedRank : public ::testing::Test {
 protected:
  static WaitPolicy policy() {
    WaitPolicy policy;
    policy.timeout_seconds = 1.5;
    return policy;
  }
  Status wait() {
    return waiter_.nap([] { return Waiter::Situation{1, "a call", "rank 1"}; });
  }
  /// As if it had been stopped: it does not look.
  static void stop() { usleep(3'000'000); }
  /// Until it gives up; seconds.
  double patience() {
    const double since = now_seconds();
    Status status;
    while (status.ok() && now_seconds() < since + 20) status = wait();
    EXPECT_EQ(status.reason(), Reason::timeout) << status.message();
    return now_seconds() - since;
  }

  transports::Node node_{2};
  ControlLine line_;
  FailureMonitor monitor_{line_};
  Waiter waiter_{0, node_[0], nullptr, monitor_, policy()};
};

TEST_F(StoppedRank, WaitsForItsPeersAsLongAsAnyOtherOnceItGoesOn) {
  waiter_.begin(false);
  EXPECT_TRUE(wait().ok());
  stop();
  EXPECT_TRUE(wait().ok());
  EXPECT_GT(patience(), 0.5);
}

// What was not counted then is none of the time since.
TEST_F(StoppedRank, BeforeItsStreamCameWaitsNoLongerForItsPeers) {
  std::atomic<uint64_t> come = 0;
  QueuedBehind behind;
  behind.come = {&come, 1};
  waiter_.begin(false, &behind);
  EXPECT_TRUE(wait().ok());
  stop();
  EXPECT_TRUE(wait().ok());
  come = 1;
  EXPECT_LT(patience(), 3.5);
}

TEST_F(StoppedRank, HearsOfANodeThatHasGivenUpWithoutAWordOfTheOthers) {
  waiter_.begin(false);
  node_[1].say_gave_up();
  Status status;
  for (const double since = now_seconds(); status.ok() && now_seconds() < since + 20;) status = wait();
  EXPECT_EQ(status.reason(), Reason::none) << status.message();
  EXPECT_THAT(status.message(), ::testing::HasSubstr("a rank of this node gave up"));
}

}  // namespace
}  // namespace epccl::runtime
