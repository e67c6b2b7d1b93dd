#include "runtime/comm/call_order.hpp"

#include <gmock/gmock.h>

#include <future>
#include <vector>

#include "control_line.hpp"

namespace epccl::runtime {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds a_moment{50};  // in which what has to wait would have gone on

class CallOrderTest : public testing::Test {
 protected:
  /// Begins on another thread; false: it still waits.
  template <typename Begin>
  static auto on_another_thread(Begin begin) {
    return std::async(std::launch::async, std::move(begin));
  }
  template <typename Future>
  static bool is_through(Future& future) {
    return future.wait_for(a_moment) == std::future_status::ready;
  }
  void run_one() {
    ASSERT_TRUE(order_.begin(order_.take_ticket(), 0).ok());
    order_.end();
  }

  ControlLine line_;
  FailureMonitor monitor_{line_};
  CallOrder order_{monitor_, 0, 0};
};

TEST_F(CallOrderTest, RunsWorkByItsTicketsWhoeverComesFirst) {
  const uint64_t first = order_.take_ticket(), second = order_.take_ticket(), third = order_.take_ticket();
  std::vector<uint64_t> ran;
  const auto work = [&](uint64_t ticket) {
    return on_another_thread([&, ticket] {
      EXPECT_TRUE(order_.begin(ticket, 0).ok());
      ran.push_back(ticket);
      order_.end();
    });
  };
  auto last = work(third);
  EXPECT_FALSE(is_through(last));
  auto middle = work(second);
  EXPECT_FALSE(is_through(middle));
  work(first).wait();
  middle.wait();
  last.wait();
  EXPECT_THAT(ran, ElementsAre(first, second, third));
}

TEST_F(CallOrderTest, ATicketThatIsPassedHoldsNobodyUp) {
  order_.pass(order_.take_ticket());
  run_one();
}

TEST_F(CallOrderTest, WorkWaitsForAPeerAsLongAsItSaysElseAsAllDoes) {
  order_.set_timeout(7);
  EXPECT_EQ(*order_.begin(order_.take_ticket(), 3), 3);
  EXPECT_EQ(order_.timeout(), 3);
  order_.end();
  EXPECT_EQ(order_.timeout(), 7);
  EXPECT_EQ(*order_.begin(order_.take_ticket(), 0), 7);
  order_.end();
}

TEST_F(CallOrderTest, AllWorkFailsWithTheFirstFailure) {
  EXPECT_TRUE(order_.keep(Status(Code::remote_error, "first")));
  EXPECT_FALSE(order_.keep(Status(Code::remote_error, "second")));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(order_.begin(order_.take_ticket(), 0).status().message(), HasSubstr("first"));
    order_.end();
  }
  EXPECT_THAT(order_.begin_replay().status().message(), HasSubstr("first"));
}

TEST_F(CallOrderTest, AReplayWaitsForWorkThatRuns) {
  ASSERT_TRUE(order_.begin(order_.take_ticket(), 0).ok());
  auto replay = on_another_thread([&] { return order_.begin_replay().status(); });
  EXPECT_FALSE(is_through(replay));
  order_.end();
  EXPECT_TRUE(replay.get().ok());
  order_.end_replay();
}

TEST_F(CallOrderTest, AReplayGoesBeforeWorkThatGivesWayWhichGoesOnAfterIt) {
  ASSERT_TRUE(order_.begin(order_.take_ticket(), 0).ok());
  ASSERT_TRUE(order_.give_way());
  ASSERT_TRUE(on_another_thread([&] { return order_.begin_replay().status(); }).get().ok());
  std::promise<void> ends;
  auto replay = on_another_thread([&] {
    ends.get_future().wait();
    order_.end_replay();
  });
  auto goes_on = on_another_thread([&] { return order_.take_way_back(); });
  EXPECT_FALSE(is_through(goes_on));
  ends.set_value();
  EXPECT_TRUE(goes_on.get().ok());
  order_.end();
}

TEST_F(CallOrderTest, OnlyTheThreadThatRunsWorkCanGiveWay) {
  EXPECT_FALSE(order_.give_way());
  ASSERT_TRUE(order_.begin(order_.take_ticket(), 0).ok());
  EXPECT_FALSE(on_another_thread([&] { return order_.give_way(); }).get());
  order_.end();
}

TEST_F(CallOrderTest, FailuresOfOthersAreLookedForOnlyWhereNoWorkDoes) {
  line_.bring({Notice::Kind::died, 3, "rank 3 has died"});
  ASSERT_TRUE(order_.begin(order_.take_ticket(), 0).ok());
  EXPECT_TRUE(order_.poll().ok());
  EXPECT_EQ(line_.looks(), 0);
  order_.end();
  EXPECT_THAT(order_.poll().message(), HasSubstr("rank 3 has died"));
}

// As where it is behind a stream that waits for something else.
TEST_F(CallOrderTest, WhoWaitsBehindWorkThatHasNotBegunHearsOfFailuresAndLeavesTheLine) {
  const uint64_t first = order_.take_ticket(), second = order_.take_ticket(), third = order_.take_ticket();
  auto waits = on_another_thread([&] { return order_.begin(second, 0); });
  EXPECT_FALSE(is_through(waits));
  monitor_.abort("it was aborted");
  const Admission none = waits.get();
  EXPECT_FALSE(none.has_come);
  EXPECT_THAT(none.status().message(), HasSubstr("it was aborted"));
  ASSERT_TRUE(order_.begin(first, 0).ok());
  order_.end();
  EXPECT_TRUE(order_.begin(third, 0).ok()) << "whose turn comes next";
  order_.end();
  EXPECT_TRUE(order_.is_quiet());
}

TEST_F(CallOrderTest, WhoWaitsBehindWorkThatRunsLeavesFailuresToIt) {
  const uint64_t first = order_.take_ticket(), second = order_.take_ticket();
  ASSERT_TRUE(order_.begin(first, 0).ok());
  auto waits = on_another_thread([&] { return order_.begin(second, 0); });
  monitor_.abort("it was aborted");
  EXPECT_FALSE(is_through(waits));
  order_.end();
  EXPECT_TRUE(waits.get().has_come);
  order_.end();
}

TEST_F(CallOrderTest, WhoWaitsBehindWorkThatHasGivenWayHearsOfFailures) {
  const uint64_t first = order_.take_ticket(), second = order_.take_ticket();
  ASSERT_TRUE(order_.begin(first, 0).ok());
  ASSERT_TRUE(order_.give_way());
  auto waits = on_another_thread([&] { return order_.begin(second, 0); });
  EXPECT_FALSE(is_through(waits));
  monitor_.abort("it was aborted");
  EXPECT_FALSE(waits.get().has_come);
  EXPECT_TRUE(order_.take_way_back().ok());
  order_.end();
  EXPECT_TRUE(order_.is_quiet());
}

TEST_F(CallOrderTest, TheEndDoesNotWaitForWorkThatWillNotRunSinceAnotherRankHasDied) {
  const uint64_t ticket = order_.take_ticket();
  auto ends = on_another_thread([&] { return order_.finalize(); });
  EXPECT_FALSE(is_through(ends));
  line_.bring({Notice::Kind::died, 3, "rank 3 has died"});
  const Status heard = ends.get();
  EXPECT_THAT(heard.message(), HasSubstr("rank 3 has died"));
  EXPECT_TRUE(order_.finalized());
  EXPECT_TRUE(order_.keep(heard));
  EXPECT_THAT(order_.begin(ticket, 0).status().message(), HasSubstr("rank 3 has died"));
  order_.end();
}

TEST_F(CallOrderTest, ATicketThatIsGivenBackBeforeItsTurnIsPassedBy) {
  const uint64_t first = order_.take_ticket(), second = order_.take_ticket();
  order_.pass(second);
  ASSERT_TRUE(order_.begin(first, 0).ok());
  order_.end();
  EXPECT_TRUE(order_.is_quiet());
}

TEST_F(CallOrderTest, ARegularEndOfAnotherIsAFailureToWhoNeedsItOnly) {
  line_.bring({Notice::Kind::ended, 3, "rank 3 is gone"});
  EXPECT_TRUE(order_.poll().ok());
  EXPECT_TRUE(order_.poll().ok());
  EXPECT_THAT(order_.poll_while_waiting().message(), HasSubstr("rank 3 is gone"));
}

TEST_F(CallOrderTest, WhoHasFinalizedNeedsNobodyAndRunsNoReplay) {
  run_one();
  EXPECT_TRUE(order_.finalize().ok());
  line_.bring({Notice::Kind::died, 3, "rank 3 has died"});
  EXPECT_TRUE(order_.poll().ok());
  EXPECT_THAT(order_.begin_replay().status().message(), HasSubstr("finalized"));
}

TEST_F(CallOrderTest, ARevokedOneIsInProgressUntilNothingRuns) {
  ASSERT_TRUE(order_.begin(order_.take_ticket(), 0).ok());
  order_.revoke();
  EXPECT_EQ(order_.poll().code(), Code::in_progress);
  auto stopped = on_another_thread([&] { order_.stop("revoked"); });
  EXPECT_FALSE(is_through(stopped));
  order_.end();
  stopped.wait();
  EXPECT_TRUE(order_.poll().ok());
  EXPECT_THAT(order_.begin(order_.take_ticket(), 0).status().message(), HasSubstr("revoked"));
  order_.end();
  EXPECT_FALSE(order_.poll_for_replays().ok());
}

}  // namespace
}  // namespace epccl::runtime
