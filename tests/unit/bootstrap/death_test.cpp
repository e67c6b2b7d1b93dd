// Processes that die, as ranks and as home of the rendezvous.
#include "ranks.hpp"

namespace epccl::test {
namespace {

/// How soon a death must be known. A closed socket is seen at once; this leaves room for a busy machine.
constexpr double soon = 15;

TEST(Death, SigkillOfARankReachesAllOthers) {
  Child child([](Child& self) {
    const auto joined = Bootstrap::join(self.get<UniqueId>(), 2, 4, patience);
    self.put(joined.ok());
    pause();
  });
  const UniqueId id = fresh_id();
  child.put(id);
  std::vector<std::unique_ptr<Bootstrap>> lines(4);
  on_ranks(3, [&](int index) {
    const int rank = index == 2 ? 3 : index;
    lines[static_cast<size_t>(rank)] = Bootstrap::join(id, rank, 4, patience).value();
  });
  ASSERT_TRUE(child.get<bool>());
  child.kill();
  for (const size_t rank : {0u, 1u, 3u}) {
    const auto notice = wait_for_notice(*lines[rank], soon);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->kind, Notice::Kind::died);
    EXPECT_EQ(notice->rank, 2);
    EXPECT_CONTAINS(notice->text, fmt::format("pid {}", child.pid()));
  }
}

TEST(Death, IsSeenAlthoughAForkedWorkerOfTheRankLivesOn) {
  Child child([](Child& self) {
    const auto joined = Bootstrap::join(self.get<UniqueId>(), 1, 2, patience);
    const pid_t worker = fork();  // as a data loader does: no exec, every descriptor inherited
    if (worker == 0) {
      sleep(60);
      _exit(0);
    }
    self.put(worker);
    pause();
  });
  const UniqueId id = fresh_id();
  child.put(id);
  const auto line = Bootstrap::join(id, 0, 2, patience).value();
  const auto worker = child.get<pid_t>();
  child.kill();
  const auto notice = wait_for_notice(*line, soon);
  EXPECT_EQ(kill(worker, 0), 0) << "the worker must outlive the rank for this test to say anything";
  kill(worker, SIGKILL);
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->kind, Notice::Kind::died);
}

TEST(Death, OfTheRendezvousProcessNamesItsRank) {
  Child child([](Child& self) {
    const UniqueId id = fresh_id();
    self.put(id);
    const auto joined = Bootstrap::join(id, 0, 3, patience);
    self.put(joined.ok());
    pause();
  });
  const UniqueId id = child.get<UniqueId>();
  auto lines = join_all(id, 3, 1);
  ASSERT_TRUE(child.get<bool>());
  child.kill();
  for (const size_t rank : {1u, 2u}) {
    const auto notice = wait_for_notice(*lines[rank], soon);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->kind, Notice::Kind::hub_lost);
    EXPECT_EQ(notice->rank, 0);
    EXPECT_CONTAINS(notice->text, "rank 0, which holds the rendezvous (host ");
    EXPECT_CONTAINS(notice->text, fmt::format("pid {}", child.pid()));
    EXPECT_CONTAINS(lines[rank]->barrier().message(), "rank 0");
    lines[rank]->leave(Bootstrap::any_call);
  }
}

TEST(Death, OfTheRendezvousProcessIsToldOfEachOfItsRanks) {
  Child child([](Child& self) {
    const UniqueId id = fresh_id();
    self.put(id);
    std::vector<std::unique_ptr<Bootstrap>> lines(4);
    on_ranks(3, [&](int index) {
      const int rank = index == 2 ? 4 : index;
      lines[static_cast<size_t>(index)] = Bootstrap::join(id, rank, 5, patience).value();
    });
    lines[2]->leave(Bootstrap::any_call);                       // of which nothing is told then
    while (lines[0]->describe_others() != "left: 4") continue;  // and which the others have heard of
    self.put(true);
    pause();
  });
  const UniqueId id = child.get<UniqueId>();
  std::vector<std::unique_ptr<Bootstrap>> lines(5);
  on_ranks(2, [&](int index) {
    const auto rank = static_cast<size_t>(index + 2);
    lines[rank] = Bootstrap::join(id, index + 2, 5, patience).value();
  });
  ASSERT_TRUE(child.get<bool>());
  child.kill();
  for (const size_t rank : {2u, 3u}) {
    const auto lost = wait_for_notice(*lines[rank], soon), also = wait_for_notice(*lines[rank], soon);
    ASSERT_TRUE(lost && also);
    EXPECT_EQ(lost->kind, Notice::Kind::hub_lost);
    EXPECT_EQ(lost->rank, 0);
    EXPECT_EQ(also->kind, Notice::Kind::died);
    EXPECT_EQ(also->rank, 1);
    EXPECT_CONTAINS(also->text, "rank 1, which holds the rendezvous (host ");
    EXPECT_EQ(wait_for_notice(*lines[rank], 0.2), std::nullopt);
    lines[rank]->leave(Bootstrap::any_call);
  }
}

TEST(Death, RegularEndOfTheRendezvousProcessAfterItsRankLeftIsNone) {
  Child child([](Child& self) {
    setenv("EPCCL_TIMEOUT", "0.2", 1);  // how long it stays for the other
    const UniqueId id = fresh_id();
    self.put(id);
    {
      const auto joined = Bootstrap::join(id, 0, 2, patience);
      joined.value()->leave(Bootstrap::any_call);
    }
    exit(0);  // runs the destructors of static objects
  });
  const UniqueId id = child.get<UniqueId>();
  auto lines = join_all(id, 2, 1);
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(wait_for_notice(*lines[1], 0.3), std::nullopt);
  EXPECT_CONTAINS(lines[1]->barrier().message(), "has ended");
}

// They may have something to look up yet.
TEST(Death, RegularEndOfTheRendezvousProcessWaitsForOthersInTheirLastCall) {
  Child child([](Child& self) {
    const UniqueId id = fresh_id();
    self.put(id);
    {
      const auto joined = Bootstrap::join(id, 0, 3, patience);
      joined.value()->leave(Bootstrap::any_call);
    }
    self.put(true);
    exit(0);
  });
  const UniqueId id = child.get<UniqueId>();
  auto lines = join_all(id, 3, 1);
  ASSERT_TRUE(child.get<bool>());
  usleep(200'000);
  const std::array<std::byte, 1> address{std::byte{7}};
  EXPECT_TRUE(lines[1]->publish("address", address).ok());
  const auto found = lines[2]->lookup(1, "address");
  EXPECT_TRUE(found.ok()) << found.status().message();
  const double begin = now_seconds();
  lines[1]->leave(Bootstrap::any_call);
  lines[2]->leave(Bootstrap::any_call);
  EXPECT_EQ(child.wait(), 0);
  EXPECT_LT(now_seconds() - begin, 8) << "it would stay for 10 s";
}

TEST(Death, RegularEndOfAProcessThatOnlyHoldsTheRendezvousIsNone) {
  Child child([](Child& self) {
    self.put(fresh_id());
    self.get<bool>();
    exit(0);
  });
  const UniqueId id = child.get<UniqueId>();
  auto lines = join_all(id, 2);
  child.put(true);
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(wait_for_notice(*lines[1], 0.3), std::nullopt);
}

// A program that does not destroy its communicators: who needs its rank must know, who is idle must not take it for a death.
TEST(Death, RegularEndOfTheRendezvousProcessWhoseRankHasNotLeftIsToldAsSuch) {
  Child child([](Child& self) {
    setenv("EPCCL_TIMEOUT", "0.2", 1);  // how long it stays for the other
    const UniqueId id = fresh_id();
    self.put(id);
    const auto joined = Bootstrap::join(id, 0, 2, patience);
    exit(joined.ok() ? 0 : 1);  // without destroying `joined`
  });
  const UniqueId id = child.get<UniqueId>();
  auto lines = join_all(id, 2, 1);
  const auto notice = wait_for_notice(*lines[1], soon);
  EXPECT_EQ(child.wait(), 0);
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->kind, Notice::Kind::ended);
  EXPECT_EQ(notice->rank, 0);
  EXPECT_CONTAINS(notice->text, "ended without leaving");
  EXPECT_EQ(wait_for_notice(*lines[1], 0.3), std::nullopt) << "nothing else is wrong";
}

TEST(Death, RegularEndOfARankThatHasNotLeftIsToldAsSuch) {
  Child child([](Child& self) {
    const auto joined = Bootstrap::join(self.get<UniqueId>(), 1, 3, patience);
    exit(joined.ok() ? 0 : 1);  // without destroying `joined`
  });
  const UniqueId id = fresh_id();
  child.put(id);
  std::vector<std::unique_ptr<Bootstrap>> lines(3);
  on_ranks(2, [&](int index) {
    lines[2 * static_cast<size_t>(index)] = Bootstrap::join(id, 2 * index, 3, patience).value();
  });
  for (const size_t rank : {0u, 2u}) {
    const auto notice = wait_for_notice(*lines[rank], soon);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->kind, Notice::Kind::ended);
    EXPECT_EQ(notice->rank, 1);
  }
  EXPECT_EQ(child.wait(), 0);
  EXPECT_CONTAINS(lines[0]->barrier().message(), "has left");
}

TEST(Death, ForkedChildOfTheRendezvousProcessMayEndRegularly) {
  const UniqueId id = fresh_id();
  auto lines = join_all(id, 2);
  const pid_t worker = fork();
  if (worker == 0) exit(0);  // its static objects hold a copy of the hub, whose thread is not there
  int status = -1;
  waitpid(worker, &status, 0);
  EXPECT_EQ(status, 0);
  on_ranks(2, [&](int rank) { EXPECT_TRUE(lines[static_cast<size_t>(rank)]->barrier().ok()); });
}

}  // namespace
}  // namespace epccl::test
