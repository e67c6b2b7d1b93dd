// What a rank knows of failures that others found out.
#include "runtime/executor/failure_monitor.hpp"

#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "control_line.hpp"

namespace epccl::runtime {
namespace {

class FailuresOfOthers : public testing::Test {
 protected:
  void hear(Notice::Kind kind, std::string text, Reason reason) {
    line_.bring({kind, 1, std::move(text), reason});
  }

  ControlLine line_;
  FailureMonitor monitor_{line_};
};

TEST_F(FailuresOfOthers, KeepTheirReason) {
  hear(Notice::Kind::failed, "rank 1 failed: it waited", Reason::timeout);
  EXPECT_EQ(monitor_.check().reason(), Reason::timeout);
  EXPECT_EQ(monitor_.check_while_idle().reason(), Reason::timeout);
}

TEST_F(FailuresOfOthers, KeepTheirReasonWhereAnotherThreadHearsOfThem) {
  hear(Notice::Kind::died, "rank 1 is out of reach", Reason::unreachable);
  EXPECT_EQ(monitor_.overhear().reason(), Reason::unreachable);
}

TEST_F(FailuresOfOthers, AreNoTimeoutByTheirText) {
  hear(Notice::Kind::died, "rank 1 of timeout: a name died", Reason::none);
  EXPECT_EQ(monitor_.check().reason(), Reason::none);
}

TEST_F(FailuresOfOthers, ExplainAnEcho) {
  hear(Notice::Kind::failed, "rank 1 failed: it waited", Reason::timeout);
  const Status known = monitor_.explain({Code::remote_error, "a connection broke"});
  EXPECT_EQ(known.reason(), Reason::timeout);
  EXPECT_EQ(known.message(), "rank 1 failed: it waited");
}

// A failure goes through several hands, each of which asks, and may have got more words on its way.
TEST_F(FailuresOfOthers, AreWaitedForOnce) {
  Status broken{Code::remote_error, "a connection broke"};
  broken = monitor_.explain(std::move(broken));
  EXPECT_EQ(broken.message(), "a connection broke");
  const double begin = now_seconds();
  broken = monitor_.explain(std::move(broken).with_context("rank 0"));
  EXPECT_EQ(broken.message(), "rank 0: a connection broke");
  EXPECT_LT(now_seconds() - begin, 0.5);
}

}  // namespace
}  // namespace epccl::runtime
