// Joining a communicator.
#include <sys/resource.h>

#include <array>
#include <atomic>

#include "ranks.hpp"
#include "runtime/bootstrap/rendezvous.hpp"
#include "taken_port.hpp"

namespace epccl::test {
namespace {

class JoinSizes : public testing::TestWithParam<int> {};

TEST_P(JoinSizes, AllRanksJoinAndLeave) {
  auto ranks = join_all(fresh_id(), GetParam());
  on_ranks(GetParam(), [&](int rank) { ranks[static_cast<size_t>(rank)]->leave(Bootstrap::any_call); });
  for (const auto& rank : ranks) EXPECT_EQ(rank->poll_notice(), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Join, JoinSizes, testing::Range(1, 17));

TEST(Join, SixtyFourRanks) {
  auto ranks = join_all(fresh_id(), 64);
  on_ranks(64, [&](int rank) { ranks[static_cast<size_t>(rank)]->leave(Bootstrap::any_call); });
}

TEST(Join, CommunicatorsOfOneProcessAreIndependent) {
  auto first = join_all(fresh_id(), 2);
  auto second = join_all(fresh_id(), 3);
  first[0].reset();  // a death, in the first only
  ASSERT_TRUE(wait_for_notice(*first[1]));
  on_ranks(3, [&](int rank) { EXPECT_TRUE(second[static_cast<size_t>(rank)]->barrier().ok()); });
}

/// A process that has the rendezvous, and so many descriptors above those that this one has open.
class SmallRendezvous {
 public:
  SmallRendezvous(rlim_t soft, rlim_t hard)
      : process_([=](Child& self) {
          const auto open = static_cast<rlim_t>(UniqueFd(dup(STDIN_FILENO)).get());
          const rlimit limit{open + soft, open + hard};
          self.put(setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : 0);
          setenv("EPCCL_TIMEOUT", "12", 1);  // by which it is told how long to wait for descriptors
          self.put(fresh_id());
          pause();
        }) {
    most = process_.get<rlim_t>();
    EXPECT_GT(most, 0u);
    id = process_.get<UniqueId>();
  }
  rlim_t most = 0;
  UniqueId id;

 private:
  Child process_;
};

TEST(Join, MoreRanksThanTheRendezvousHasDescriptorsAtFirst) {
  const SmallRendezvous rendezvous(24, 256);
  for (const auto& rank : join_all(rendezvous.id, 64)) EXPECT_TRUE(rank);
}

TEST(Join, MoreRanksThanTheRendezvousMayHaveDescriptorsAllHearSo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "without a descriptor for its pipe UndefinedBehaviorSanitizer takes objects for none";
#endif
  const SmallRendezvous rendezvous(16, 24);
  std::atomic<int> told = 0;
  on_ranks(40, [&](int rank) {
    const auto joined = Bootstrap::join(rendezvous.id, rank, 40, patience);
    ASSERT_FALSE(joined.ok());
    EXPECT_CONTAINS(joined.status().message(), "of 40 ranks: accepting a connection: Too many open files");
    EXPECT_CONTAINS(joined.status().message(),
                    fmt::format("RLIMIT_NOFILE of that process is {},", rendezvous.most));
    ++told;
  });
  EXPECT_EQ(told, 40);
}

TEST(Join, MissingRanksAreNamedAfterTheTimeout) {
  const UniqueId id = fresh_id();
  std::atomic<int> named = 0;
  on_ranks(3, [&](int index) {
    const int rank = index * 2;  // 0, 2, 4 of 6
    const auto joined = Bootstrap::join(id, rank, 6, rank == 0 ? 10 : patience);
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.status().code(), Code::remote_error);
    EXPECT_CONTAINS(joined.status().message(), "3 of 6 ranks had joined after 10 s; missing: 1, 3, 5");
    EXPECT_EQ(joined.status().reason(), Reason::timeout);
    ++named;
  });
  EXPECT_EQ(named, 3) << "those that would have waited longer hear of it too";
}

TEST(Join, OfAnIdThatIsDiscardedIsToldWhy) {
  const UniqueId id = fresh_id();
  std::jthread discards([&] {
    sleep(3);  // rank 0 has come
    runtime::discard_unique_id(id, "rank 2 did not come for the id");
  });
  const double began = now_seconds();
  const auto joined = Bootstrap::join(id, 0, 3, patience);
  ASSERT_FALSE(joined.ok());
  EXPECT_CONTAINS(joined.status().message(), "rank 2 did not come for the id");
  EXPECT_LT(now_seconds() - began, patience);
}

TEST(Join, LateRankIsToldThatTheOthersGaveUp) {
  const UniqueId id = fresh_id();
  ASSERT_FALSE(Bootstrap::join(id, 0, 2, 5).ok());
  const auto late = Bootstrap::join(id, 1, 2, patience);
  ASSERT_FALSE(late.ok());
  EXPECT_CONTAINS(late.status().message(), "rank 0");
  EXPECT_CONTAINS(late.status().message(), "missing: 1");
}

TEST(Join, RankTakenTwiceIsRefusedAndTheOthersGoOn) {
  const UniqueId id = fresh_id();
  std::array<std::unique_ptr<Bootstrap>, 2> lines;
  std::array<Status, 2> statuses;
  std::atomic<int> ended = 0;
  std::jthread twins([&] {
    on_ranks(2, [&](int twin) {
      auto joined = Bootstrap::join(id, 0, 2, patience);
      const auto at = static_cast<size_t>(twin);
      if (joined.ok()) {
        lines[at] = std::move(joined).value();
      } else {
        statuses[at] = joined.status();
      }
      ++ended;
    });
  });
  // One of the two rank 0 is first; with rank 1 absent, the other one is refused while the first still waits.
  while (ended == 0) usleep(1000);
  const auto second = Bootstrap::join(id, 1, 2, patience);
  EXPECT_TRUE(second.ok());
  twins.join();
  const Status& refused = statuses[lines[0] == nullptr ? 0 : 1];
  EXPECT_NE(lines[0] == nullptr, lines[1] == nullptr) << "one of the two goes on";
  EXPECT_EQ(refused.code(), Code::invalid_usage);
  EXPECT_CONTAINS(refused.message(), "rank 0 is taken: rank 0 (host ");
}

TEST(Join, DifferentRankCountsAreAnErrorForAll) {
  const UniqueId id = fresh_id();
  std::atomic<int> told = 0;
  on_ranks(2, [&](int rank) {
    const auto joined = Bootstrap::join(id, rank, rank == 0 ? 2 : 3, patience);
    ASSERT_FALSE(joined.ok());
    EXPECT_CONTAINS(joined.status().message(), "ranks disagree on their number");
    EXPECT_CONTAINS(joined.status().message(), " 2");
    EXPECT_CONTAINS(joined.status().message(), " 3");
    ++told;
  });
  EXPECT_EQ(told, 2);
}

TEST(Join, DeathWhileOthersWaitIsNamed) {
  UniqueId id;
  Child child([&](Child& self) {
    id = self.get<UniqueId>();
    // Who comes as rank 1, too, is refused once rank 1 has joined.
    on_ranks(2, [&](int) {
      const bool is_refused = Bootstrap::join(id, 1, 3, patience).status().code() == Code::invalid_usage;
      if (is_refused) self.put(is_refused);
    });
  });
  id = fresh_id();
  child.put(id);
  std::jthread killer([&] {
    EXPECT_TRUE(child.get<bool>());
    child.kill();
  });
  const auto joined = Bootstrap::join(id, 0, 3, patience);
  ASSERT_FALSE(joined.ok());
  EXPECT_CONTAINS(joined.status().message(), "rank 1 (host ");
  EXPECT_CONTAINS(joined.status().message(), fmt::format("pid {}", child.pid()));
  EXPECT_CONTAINS(joined.status().message(), "died");
}

TEST(Join, NobodyListeningIsAnErrorWithTheAddress) {
  const TakenPort port;
  runtime::Rendezvous nowhere;
  nowhere.endpoint = port.endpoint();
  const auto joined = Bootstrap::join(encode(nowhere), 0, 1, 0.3);
  ASSERT_FALSE(joined.ok());
  EXPECT_CONTAINS(joined.status().message(), nowhere.endpoint.to_string());
  EXPECT_CONTAINS(joined.status().message(), "Connection refused");
}

// As of one that comes when the process that made the id has ended.
TEST(Join, NobodyListeningIsAnErrorLongBeforeTheTimeIsUp) {
  const TakenPort port;
  runtime::Rendezvous nowhere;
  nowhere.endpoint = port.endpoint();
  const double began = now_seconds();
  const auto joined = Bootstrap::join(encode(nowhere), 0, 1, 1000);
  EXPECT_LT(now_seconds() - began, 500);
  ASSERT_FALSE(joined.ok());
  EXPECT_CONTAINS(joined.status().message(),
                  "there is no rendezvous at " + nowhere.endpoint.to_string() + " any more");
  EXPECT_CONTAINS(joined.status().message(), "EPCCL_SOCKET_IFNAME");
}

// As where a bridge for containers has one address on every machine.
TEST(Join, NobodyListeningAtAnAddressOfThisMachineIsToldAsSuch) {
  auto own = net::local_address("");
  if (own->is_loopback()) GTEST_SKIP() << "this machine has no other address";
  ASSERT_TRUE(net::listen_at(*own).ok());  // and not any more
  runtime::Rendezvous nowhere;
  nowhere.endpoint = *own;
  const auto joined = Bootstrap::join(encode(nowhere), 0, 1, patience);
  ASSERT_FALSE(joined.ok());
  for (const char* part : {"also one of this machine's own", "EPCCL_SOCKET_IFNAME"})
    EXPECT_CONTAINS(joined.status().message(), part);
}

TEST(Join, WaitsForARendezvousThatOpensLate) {
  const UniqueId id = fresh_id();
  auto elsewhere = *runtime::decode(id);
  // Forwards nothing: it only shows that the connection is retried until somebody listens there.
  const TakenPort port;
  elsewhere.endpoint = port.endpoint();
  std::jthread late([&port] {
    usleep(50'000);
    const int listener = port.listens();
    ASSERT_TRUE(net::wait_for(listener, POLLIN, now_seconds() + patience));
    const UniqueFd caller(accept(listener, nullptr, nullptr));
    std::byte rubbish[8] = {};
    rubbish[0] = std::byte{4};
    rubbish[4] = std::byte{16};
    EXPECT_EQ(send(caller.get(), rubbish, sizeof rubbish, MSG_NOSIGNAL), 8);
    usleep(100'000);
  });
  const auto joined = Bootstrap::join(encode(elsewhere), 0, 1, patience);
  ASSERT_FALSE(joined.ok());
  EXPECT_CONTAINS(joined.status().message(), "does not hold the secret");
}

TEST(Join, ImpossibleRanksAreRefusedAtOnce) {
  const UniqueId id = fresh_id();
  for (const auto& [rank, ranks] : {std::pair(-1, 2), std::pair(2, 2), std::pair(0, 0), std::pair(0, -1)})
    EXPECT_EQ(Bootstrap::join(id, rank, ranks, 1).status().code(), Code::invalid_argument)
        << rank << " of " << ranks;
}

TEST(Join, RubbishIdIsRefusedAtOnce) {
  const auto joined = Bootstrap::join(UniqueId{}, 0, 1, patience);
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.status().code(), Code::invalid_argument);
  EXPECT_CONTAINS(joined.status().message(), "all zeros");
}

TEST(Join, WrongSecretIsRefusedAndTheOthersGoOn) {
  const UniqueId id = fresh_id();
  auto forged = *runtime::decode(id);
  forged.secret[7] ^= std::byte{1};
  std::jthread first([&] { EXPECT_TRUE(Bootstrap::join(id, 0, 2, patience).ok()); });
  const auto refused = Bootstrap::join(encode(forged), 1, 2, patience);
  ASSERT_FALSE(refused.ok());
  EXPECT_CONTAINS(refused.status().message(), "does not hold the secret of this unique id");
  EXPECT_TRUE(Bootstrap::join(id, 1, 2, patience).ok());
}

}  // namespace
}  // namespace epccl::test
