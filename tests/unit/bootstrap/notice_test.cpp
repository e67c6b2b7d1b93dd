// What ranks hear of each other: deaths, failures, disagreements.
#include <array>
#include <span>

#include "ranks.hpp"

namespace epccl::test {
namespace {

TEST(Notices, NoneWhileAllIsWell) {
  auto lines = join_all(fresh_id(), 2);
  pollfd entry{lines[0]->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 50), 0) << "fd() must not be readable";
  EXPECT_EQ(lines[0]->poll_notice(), std::nullopt);
}

TEST(Notices, ConnectionThatClosesWithoutLeaveIsADeath) {
  auto lines = join_all(fresh_id(), 3);
  lines[1].reset();
  for (const size_t rank : {0u, 2u}) {
    const auto notice = wait_for_notice(*lines[rank]);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->kind, Notice::Kind::died);
    EXPECT_EQ(notice->rank, 1);
    EXPECT_CONTAINS(notice->text, fmt::format("rank 1 (host "));
    EXPECT_CONTAINS(notice->text, fmt::format("pid {}) died", getpid()));
  }
}

TEST(Notices, LeavingIsNoDeath) {
  auto lines = join_all(fresh_id(), 3);
  lines[1]->leave(Bootstrap::any_call);
  lines[1].reset();
  // The answer to a question comes after any notice of the departure.
  EXPECT_EQ(lines[0]->describe_others(), "left: 1");
  EXPECT_EQ(lines[0]->poll_notice(), std::nullopt);
}

// Who asks is told of those that have left, and of those that leave.
TEST(Notices, WhoHasLeftIsToldToWhoAsks) {
  auto lines = join_all(fresh_id(), 3);
  const std::array both{1, 2};
  const auto wait_for = [&](std::span<const int> ranks) {
    for (const double until = now_seconds() + patience; now_seconds() < until; usleep(1000))
      if (std::string who = lines[0]->who_left(ranks); !who.empty()) return who;
    return std::string("nobody");
  };
  lines[2]->leave(Bootstrap::any_call);
  EXPECT_CONTAINS(wait_for(both), "rank 2 (host ");
  EXPECT_EQ(lines[0]->who_left(std::span(both).first(1)), "");
  lines[1]->leave(Bootstrap::any_call);
  EXPECT_CONTAINS(wait_for(std::span(both).first(1)), "rank 1 (host ");
  EXPECT_EQ(lines[0]->poll_notice(), std::nullopt);
}

// Not all of these deaths are told as notices.
TEST(LostRanks, AreAllThatHaveDiedOrLeft) {
  auto lines = join_all(fresh_id(), 14);
  EXPECT_TRUE(lines[0]->lost_ranks().empty());
  lines[12]->leave(Bootstrap::any_call);
  std::vector<int> expected;
  for (int rank = 1; rank < 12; ++rank) expected.push_back(rank);
  for (const int rank : expected) lines[static_cast<size_t>(rank)].reset();
  expected.push_back(12);
  std::vector<int> lost;
  for (const double until = now_seconds() + patience; lost != expected && now_seconds() < until; usleep(1000))
    lost = lines[0]->lost_ranks();
  EXPECT_EQ(lost, expected);
}

TEST(Notices, BlockedAllgatherEndsAtOnceWithTheDeath) {
  auto lines = join_all(fresh_id(), 3);
  std::jthread dying([&] {
    usleep(100'000);
    lines[2].reset();
  });
  on_ranks(2, [&](int rank) {
    const auto all = lines[static_cast<size_t>(rank)]->allgather({});
    ASSERT_FALSE(all.ok());
    EXPECT_EQ(all.status().code(), Code::remote_error);
    EXPECT_CONTAINS(all.status().message(), "rank 2 (host ");
    const auto notice = lines[static_cast<size_t>(rank)]->poll_notice();
    ASSERT_TRUE(notice) << "the notice is still there for who polls";
    EXPECT_EQ(notice->rank, 2);
  });
}

TEST(Notices, CallsAfterADeathFailAtOnce) {
  auto lines = join_all(fresh_id(), 2);
  lines[1].reset();
  ASSERT_TRUE(wait_for_notice(*lines[0]));
  EXPECT_CONTAINS(lines[0]->barrier().message(), "rank 1 (host ");
  EXPECT_CONTAINS(lines[0]->lookup(1, "key").status().message(), "rank 1 (host ");
}

TEST(Notices, FdIsQuietAgainOnceAllNoticesAreTaken) {
  auto lines = join_all(fresh_id(), 2);
  lines[1].reset();
  ASSERT_TRUE(wait_for_notice(*lines[0]));
  while (lines[0]->poll_notice()) continue;
  pollfd entry{lines[0]->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 50), 0);
}

TEST(Notices, FailureIsToldToTheOthersOnly) {
  auto lines = join_all(fresh_id(), 3);
  lines[0]->report_failure("alltoall #7: disk on fire");
  for (const size_t rank : {1u, 2u}) {
    const auto notice = wait_for_notice(*lines[rank]);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->kind, Notice::Kind::failed);
    EXPECT_EQ(notice->rank, 0);
    EXPECT_CONTAINS(notice->text, "failed: alltoall #7: disk on fire");
  }
  lines[0]->describe_others();
  EXPECT_EQ(lines[0]->poll_notice(), std::nullopt);
}

// The text is for people, and may say what a user has named so.
TEST(Notices, OfAFailureKeepItsReason) {
  for (const Reason reason : {Reason::none, Reason::timeout, Reason::unreachable}) {
    auto lines = join_all(fresh_id(), 3);
    std::jthread blocked([&] { EXPECT_EQ(lines[2]->barrier().reason(), reason); });
    lines[0]->report_failure(Status(Code::remote_error, reason, "timeout: a name"));
    const auto notice = wait_for_notice(*lines[1]);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->kind, Notice::Kind::failed);
    EXPECT_EQ(notice->reason, reason);
    lines[1]->report_failure(Status(Code::remote_error, Reason::timeout, "another"));
    const auto second = wait_for_notice(*lines[0]);
    ASSERT_TRUE(second);
    EXPECT_EQ(second->reason, Reason::timeout);
  }
}

TEST(Notices, OfADeathHaveNoReason) {
  auto lines = join_all(fresh_id(), 2);
  lines[1].reset();
  const auto notice = wait_for_notice(*lines[0]);
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->reason, Reason::none);
  EXPECT_EQ(lines[0]->barrier().reason(), Reason::none);
}

// Who waits for a rank in a split or shrink is to hear that that one has failed, too. But there may be ranks squared of such notices.
TEST(Notices, FailuresAfterTheFirstAreToldAFewTimes) {
  auto lines = join_all(fresh_id(), 3);
  lines[0]->report_failure("the cause");
  ASSERT_TRUE(wait_for_notice(*lines[1]));
  ASSERT_TRUE(wait_for_notice(*lines[2]));
  for (int time = 0; time < 20; ++time) lines[1]->report_failure("a consequence");
  lines[1].reset();  // its end comes last
  for (const int other : {0, 2}) {
    int told = 0;
    auto notice = wait_for_notice(*lines[static_cast<size_t>(other)]);
    for (; notice && notice->kind == Notice::Kind::failed;
         notice = wait_for_notice(*lines[static_cast<size_t>(other)])) {
      EXPECT_EQ(notice->rank, 1);
      EXPECT_CONTAINS(notice->text, "failed: a consequence");
      ++told;
    }
    EXPECT_EQ(told, 8);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->kind, Notice::Kind::died);
  }
}

TEST(Notices, FailureReportedFromAnotherThreadEndsABlockedCallElsewhere) {
  auto lines = join_all(fresh_id(), 2);
  std::jthread blocked([&] { EXPECT_CONTAINS(lines[1]->barrier().message(), "aborted"); });
  std::jthread own(
      [&] { EXPECT_CONTAINS(lines[0]->lookup(1, "never").status().message(), "rank 1 (host "); });
  usleep(50'000);
  lines[0]->report_failure("aborted");
  blocked.join();
  lines[1].reset();  // ends the look-up too
}

TEST(Mismatch, DifferentCallsUnderOneNumberAreToldToAllWithBothValues) {
  auto lines = join_all(fresh_id(), 4);
  lines[1]->report_stall({7, "alltoall count 4 float32", "rank 2 to send"});
  lines[3]->report_stall({7, "alltoall count 8 float32", "rank 0 to send"});
  for (const auto& line : lines) {
    const auto notice = wait_for_notice(*line);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->kind, Notice::Kind::mismatch);
    EXPECT_CONTAINS(notice->text, "call #7");
    EXPECT_CONTAINS(notice->text, "rank 1 (host ");
    EXPECT_CONTAINS(notice->text, "calls \"alltoall count 4 float32\"");
    EXPECT_CONTAINS(notice->text, "rank 3 (host ");
    EXPECT_CONTAINS(notice->text, "calls \"alltoall count 8 float32\"");
  }
}

TEST(Mismatch, RankThatHasGoneOnIsStillCompared) {
  auto lines = join_all(fresh_id(), 2);
  lines[0]->report_stall({7, "send to 1", ""});
  lines[0]->report_stall({8, "alltoall count 4", ""});
  lines[0]->describe_others();  // the hub has both
  lines[1]->report_stall({7, "alltoall count 4", ""});
  const auto notice = wait_for_notice(*lines[0]);
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->kind, Notice::Kind::mismatch);
}

TEST(Mismatch, RankThatHasLeftSendsAndTakesNothingAnyMore) {
  auto lines = join_all(fresh_id(), 3);
  lines[1]->leave(Bootstrap::any_call);
  lines[0]->report_stall({0, "send/recv group", "rank 2: recv 8 bytes", {2}});
  lines[0]->describe_others();  // what the hub had to say to that has come
  EXPECT_FALSE(lines[0]->poll_notice());
  lines[0]->report_stall({0, "send/recv group", "rank 2: recv 8 bytes", {1, 2}});
  for (const int rank : {0, 2}) {
    const auto notice = wait_for_notice(*lines[static_cast<size_t>(rank)]);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->kind, Notice::Kind::mismatch);
    EXPECT_CONTAINS(notice->text, "rank 1 (host ");
    EXPECT_CONTAINS(notice->text, "has left, while rank 0 (host ");
  }
}

TEST(Mismatch, EqualCallsAndDifferentNumbersAreNone) {
  auto lines = join_all(fresh_id(), 3);
  lines[0]->report_stall({7, "alltoall count 4", "rank 1"});
  lines[1]->report_stall({7, "alltoall count 4", "rank 0"});
  lines[2]->report_stall({9, "alltoall count 8", "rank 0"});
  for (const auto& line : lines) {
    line->describe_others();
    EXPECT_EQ(line->poll_notice(), std::nullopt);
  }
}

TEST(Stalls, OthersAreDescribed) {
  auto lines = join_all(fresh_id(), 4);
  lines[1]->report_stall({7, "alltoall count 4", "rank 0 to send 16 bytes"});
  lines[1]->describe_others();
  lines[3]->leave(Bootstrap::any_call);
  EXPECT_EQ(lines[0]->describe_others(),
            "left: 3; rank 1 was last seen waiting in call #7 (alltoall count 4): rank 0 to send 16 bytes");
}

TEST(Stalls, FailureIsToldWithWhatTheOthersDid) {
  auto lines = join_all(fresh_id(), 3);
  lines[2]->leave(Bootstrap::any_call);
  lines[2]->describe_others();
  lines[0]->report_failure("timed out in call #7");
  const auto notice = wait_for_notice(*lines[1]);
  ASSERT_TRUE(notice);
  EXPECT_CONTAINS(notice->text, "failed: timed out in call #7; meanwhile left: 2");
}

TEST(Leave, EndsTheLaterCallsOfTheOthers) {
  auto lines = join_all(fresh_id(), 3);
  lines[2]->leave(7);
  lines[0]->report_stall({7, "alltoall count 4", "rank 1"});  // which the one that left has made
  lines[0]->describe_others();
  EXPECT_EQ(lines[0]->poll_notice(), std::nullopt);
  lines[1]->report_stall({8, "alltoall count 4", "rank 2"});
  for (int rank : {0, 1}) {
    const auto notice = wait_for_notice(*lines[static_cast<size_t>(rank)]);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->kind, Notice::Kind::mismatch);
    EXPECT_CONTAINS(notice->text, "rank 2 (host ");
    EXPECT_CONTAINS(notice->text, "has left after call #7, while rank 1 (host ");
    EXPECT_CONTAINS(notice->text, "is in call #8 (alltoall count 4)");
  }
}

TEST(Leave, EndsTheCallThatOthersAreInAlready) {
  auto lines = join_all(fresh_id(), 2);
  lines[0]->report_stall({3, "allgather count 4", "rank 1"});
  lines[0]->describe_others();
  lines[1]->leave(2);
  const auto notice = wait_for_notice(*lines[0]);
  ASSERT_TRUE(notice);
  EXPECT_CONTAINS(notice->text, "has left after call #2, while rank 0 (host ");
}

TEST(Leave, OfOneRankEndsABarrierThatCanNeverComplete) {
  auto lines = join_all(fresh_id(), 3);
  std::jthread leaving([&] {
    usleep(100'000);
    lines[2]->leave(Bootstrap::any_call);
  });
  on_ranks(2, [&](int rank) {
    const Status status = lines[static_cast<size_t>(rank)]->barrier();
    EXPECT_CONTAINS(status.message(), "rank 2 (host ");
    EXPECT_CONTAINS(status.message(), "left");
  });
}

}  // namespace
}  // namespace epccl::test
