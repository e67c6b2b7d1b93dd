// Ranks that know each other's meeting points come together there, as often as they like.
#include "runtime/bootstrap/meeting_point.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>

#include "ranks.hpp"

namespace epccl::test {
namespace {

std::unique_ptr<runtime::MeetingPoint> open_on_loopback() {
  setenv("EPCCL_SOCKET_IFNAME", "lo", 1);
  auto opened = runtime::MeetingPoint::open();
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  return opened.ok() ? std::move(opened).value() : nullptr;
}

/// `ranks` ranks meet in `session`; each must find all.
void meet(const UniqueId& id, uint64_t session, int ranks) {
  on_ranks(ranks, [&](int rank) {
    const auto line = Bootstrap::join(id, rank, ranks, patience, {session, nullptr});
    ASSERT_TRUE(line.ok()) << line.status().message();
    const auto all = line.value()->allgather(to_blob(fmt::format("{}/{}", session, rank)));
    ASSERT_TRUE(all.ok()) << all.status().message();
    for (int each = 0; each < ranks; ++each)
      EXPECT_EQ(to_text((*all)[static_cast<size_t>(each)]), fmt::format("{}/{}", session, each));
    line.value()->leave(Bootstrap::any_call);
  });
}

TEST(MeetingPoint, TakesSeveralGroupsAtOnceAndAgain) {
  const auto point = open_on_loopback();
  ASSERT_TRUE(point->serve().ok());
  {
    std::vector<std::jthread> groups;
    for (int group = 0; group < 4; ++group)
      groups.emplace_back([&, group] { meet(point->id(), static_cast<uint64_t>(group), 2 + group); });
  }
  meet(point->id(), 2, 3);  // the number is free again
}

TEST(MeetingPoint, LetsThoseWaitWhoComeBeforeItServes) {
  const auto point = open_on_loopback();
  std::jthread group([&] { meet(point->id(), 7, 2); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_TRUE(point->serve().ok());
}

// Rank 0 is back before rank 1 knows that it had gone.
TEST(MeetingPoint, TakesTheSameGroupAnewAfterARankGaveItUp) {
  const auto point = open_on_loopback();
  ASSERT_TRUE(point->serve().ok());
  const JoinOptions options{6, nullptr};
  std::jthread other([&] {
    EXPECT_CONTAINS(Bootstrap::join(point->id(), 1, 3, patience, options).status().message(), "missing: 2");
    EXPECT_TRUE(Bootstrap::join(point->id(), 1, 3, patience, options).ok());
  });
  EXPECT_CONTAINS(Bootstrap::join(point->id(), 0, 3, 10, options).status().message(),
                  "2 of 3 ranks had joined after 10 s; missing: 2");
  std::jthread late([&] { EXPECT_TRUE(Bootstrap::join(point->id(), 2, 3, patience, options).ok()); });
  EXPECT_TRUE(Bootstrap::join(point->id(), 0, 3, patience, options).ok());
}

TEST(MeetingPoint, ThatIsGoneStaysForThoseWhoAreThere) {
  auto point = open_on_loopback();
  ASSERT_TRUE(point->serve().ok());
  const UniqueId id = point->id();
  std::vector<std::unique_ptr<Bootstrap>> lines(2);
  on_ranks(2, [&](int rank) {
    lines[static_cast<size_t>(rank)] = Bootstrap::join(id, rank, 2, patience, {1, nullptr}).value();
  });
  point.reset();
  on_ranks(2, [&](int rank) { EXPECT_TRUE(lines[static_cast<size_t>(rank)]->barrier().ok()); });
  on_ranks(2, [&](int rank) { lines[static_cast<size_t>(rank)]->leave(Bootstrap::any_call); });
}

TEST(UniqueId, HasOneSession) {
  const UniqueId id = fresh_id();
  const auto refused = Bootstrap::join(id, 0, 1, patience, {1, nullptr});
  EXPECT_CONTAINS(refused.status().message(), "its connection closed");
  EXPECT_TRUE(Bootstrap::join(id, 0, 1, patience).ok());
}

TEST(UniqueId, ThatIsDiscardedLetsNobodyIn) {
  const UniqueId id = fresh_id();
  runtime::discard_unique_id(id);
  EXPECT_CONTAINS(Bootstrap::join(id, 0, 1, 0.3).status().message(), "no rendezvous at ");
}

int threads() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

TEST(UniqueId, ThatWasGivenUpEndsAfterTheTimeout) {
  const int before = threads();
  setenv("EPCCL_TIMEOUT", "2", 1);
  const UniqueId id = fresh_id();
  unsetenv("EPCCL_TIMEOUT");
  const auto began = std::chrono::steady_clock::now();
  EXPECT_CONTAINS(Bootstrap::join(id, 0, 2, 1).status().message(), "had joined");
  const int after = threads();
  // Who comes now is told why. It takes a second until rank 0 gives up, and two more until it is forgotten.
  if (std::chrono::steady_clock::now() < began + std::chrono::seconds(3)) {
    EXPECT_GT(after, before);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (threads() > before && std::chrono::steady_clock::now() < deadline) usleep(10'000);
  EXPECT_EQ(threads(), before);
}

using std::chrono_literals::operator""s, std::chrono_literals::operator""ms;

class Interruption : public testing::Test {
 protected:
  void interrupt_in(std::chrono::milliseconds time, const std::shared_ptr<Interrupt>& interrupt) {
    thread_ = std::jthread([time, interrupt] {
      std::this_thread::sleep_for(time);
      interrupt->fire();
    });
  }

 private:
  std::jthread thread_;
};

TEST_F(Interruption, EndsJoiningAndTellsTheOthers) {
  const UniqueId id = fresh_id();
  std::jthread other([&] {
    const auto joined = Bootstrap::join(id, 1, 3, patience);
    ASSERT_FALSE(joined.ok());
    EXPECT_CONTAINS(joined.status().message(), "rank 0");
    EXPECT_CONTAINS(joined.status().message(), "left before all had joined");
  });
  const auto interrupt = Interrupt::create().value();
  interrupt_in(10s, interrupt);
  const auto joined = Bootstrap::join(id, 0, 3, 1000, {0, interrupt});
  ASSERT_FALSE(joined.ok());
  EXPECT_CONTAINS(joined.status().message(), "aborted");
}

TEST_F(Interruption, BeforeARankHasJoinedIsToldToTheOthers) {
  const UniqueId id = fresh_id();
  std::jthread other([&] {
    const auto joined = Bootstrap::join(id, 1, 3, patience);
    ASSERT_FALSE(joined.ok());
    EXPECT_CONTAINS(joined.status().message(), "rank 0");
    EXPECT_CONTAINS(joined.status().message(), "left before all had joined");
  });
  const auto interrupt = Interrupt::create().value();
  interrupt->fire();
  const auto joined = Bootstrap::join(id, 0, 3, 1000, {0, interrupt});
  ASSERT_FALSE(joined.ok());
  EXPECT_CONTAINS(joined.status().message(), "aborted");
}

TEST_F(Interruption, EndsWaitingForARendezvousThatIsNotThere) {
  const UniqueId id = fresh_id();
  runtime::discard_unique_id(id);
  const auto interrupt = Interrupt::create().value();
  interrupt_in(100ms, interrupt);
  const auto joined = Bootstrap::join(id, 0, 3, 1000, {0, interrupt});
  ASSERT_FALSE(joined.ok());
  EXPECT_CONTAINS(joined.status().message(), "aborted");
}

TEST_F(Interruption, EndsABlockedAllgatherAndStays) {
  const UniqueId id = fresh_id();
  const auto interrupt = Interrupt::create().value();
  std::vector<std::unique_ptr<Bootstrap>> lines(2);
  on_ranks(2, [&](int rank) {
    lines[static_cast<size_t>(rank)] = Bootstrap::join(id, rank, 2, 1000, {0, interrupt}).value();
  });
  interrupt_in(100ms, interrupt);
  EXPECT_FALSE(lines[0]->allgather({}).ok());
  EXPECT_FALSE(lines[0]->barrier().ok());
  for (const auto& line : lines) line->leave(Bootstrap::any_call);  // a goodbye is possible all the same
}

}  // namespace
}  // namespace epccl::test
