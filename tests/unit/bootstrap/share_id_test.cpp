// How the id of rank 0 reaches the others.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/clock.hpp"
#include "runtime/bootstrap/id_exchange.hpp"
#include "runtime/bootstrap/old_stores.hpp"
#include "share_id.hpp"
#include "taken_port.hpp"

namespace epccl::test {
namespace {

using namespace runtime;
namespace fs = std::filesystem;

TEST_F(ShareId, OneRankNeedsNobody) {
  EXPECT_TRUE(share_unique_id(env(0, 1), 1).ok());
}

TEST_F(ShareId, ThroughAStore) {
  environment_.set("EPCCL_STORE", directory_);
  expect_shared(8);
  EXPECT_TRUE(fs::is_empty(directory_)) << "nothing stays behind";
}

TEST_F(ShareId, ThroughAPrivateDirectoryOnOneNode) {
  expect_shared(8);
  EXPECT_TRUE(fs::is_empty(directory_)) << "nothing stays behind";
}

TEST_F(ShareId, SeveralTimesInARow) {
  for (int attempt = 0; attempt < 5; ++attempt) expect_shared(5, "", attempt);
}

TEST_F(ShareId, RanksMayRunAheadToTheNextAttempt) {
  on_ranks(6, [&](int rank) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      const auto id = share_unique_id(env(rank, 6), patience, attempt);
      ASSERT_TRUE(id.ok()) << id.status().message();
    }
  });
  EXPECT_TRUE(fs::is_empty(directory_));
}

/// A private directory as a job leaves it that is killed while it meets.
std::string left_over(const std::string& folder, char digit, double days,
                      const std::string& file = "ask.0.1") {
  const std::string directory = fmt::format("{}/epccl-{}-{}", folder, geteuid(), std::string(32, digit));
  mkdir(directory.c_str(), 0700);
  std::ofstream(directory + "/" + file) << 'x';
  const auto then =
      fs::file_time_type::clock::now() - std::chrono::seconds(static_cast<int64_t>(days * 86400));
  fs::last_write_time(directory, then);
  return directory;
}

TEST_F(ShareId, PrivateDirectoriesOfDeadJobsGoWhenTheyAreOld) {
  const std::string old = left_over(directory_, 'a', 2), young = left_over(directory_, 'b', 0.5),
                    used = left_over(directory_, 'c', 2), foreign = left_over(directory_, 'd', 2, "thesis");
  const UniqueFd user(open(used.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_TRUE(hold_private_directory(user.get()));
  const std::string target = left_over(directory_, 'e', 2), link = target.substr(0, target.size() - 1) + 'f';
  chmod(target.c_str(), 0755);
  fs::create_directory_symlink(young, link);
  expect_shared(2);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young + "/ask.0.1"));
  EXPECT_TRUE(fs::exists(used + "/ask.0.1")) << "a rank is there";
  EXPECT_TRUE(fs::exists(foreign + "/thesis"));
  EXPECT_TRUE(fs::exists(target)) << "no private one";
  EXPECT_TRUE(fs::is_symlink(link));
}

// As of a rank that opened it just before.
TEST_F(ShareId, PrivateDirectoryThatWasRemovedIsNotHeld) {
  const std::string old = left_over(directory_, 'a', 2);
  const UniqueFd user(open(old.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  remove_old_stores(directory_);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_FALSE(hold_private_directory(user.get()));
}

TEST_F(ShareId, LeftoversOfADeadJobMisleadNobody) {
  // What a job that was killed leaves: questions that nobody waits for, answers with an id that is dead.
  environment_.unset("PMIX_NAMESPACE");  // the files have no mark of the job then
  environment_.set("EPCCL_STORE", directory_);
  for (int rank = 0; rank < 4; ++rank) {
    std::ofstream(fmt::format("{}/ask.0.{}", directory_, rank)) << std::string(32, 'a');
    std::ofstream(fmt::format("{}/id.0.{}", directory_, rank)) << std::string(160, 'i');
  }
  expect_shared(4);
}

TEST_F(ShareId, StoreThatOthersMayWriteToIsRefused) {
  environment_.set("EPCCL_STORE", directory_);
  chmod(directory_.c_str(), 0777);
  const auto id = share_unique_id(env(1, 2), patience);
  ASSERT_FALSE(id.ok());
  EXPECT_CONTAINS(id.status().message(), "writable by others");
}

TEST_F(ShareId, StoreThatIsNotThereIsAnError) {
  environment_.set("EPCCL_STORE", directory_ + "/missing");
  const auto id = share_unique_id(env(1, 2), patience);
  ASSERT_FALSE(id.ok());
  EXPECT_CONTAINS(id.status().message(), "/missing");
}

TEST_F(ShareId, FilesAreForTheUserOnly) {
  environment_.unset("PMIX_NAMESPACE");  // the files have no mark of the job then
  environment_.set("EPCCL_STORE", directory_);
  std::jthread asking([&] { EXPECT_FALSE(share_unique_id(env(1, 2), 1).ok()); });
  const double deadline = now_seconds() + patience;
  const fs::path ask = directory_ + "/ask.0.1";
  while (!fs::exists(ask) && now_seconds() < deadline) usleep(1000);
  EXPECT_EQ(fs::status(ask).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  asking.join();
  EXPECT_TRUE(fs::is_empty(directory_)) << "a rank that gives up takes its question back";
}

TEST_F(ShareId, AnAnswerThatNobodyTakesIsTakenBackAndItsRendezvousEnds) {
  const auto threads = [] {
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  environment_.unset("PMIX_NAMESPACE");  // the files have no mark of the job then
  environment_.set("EPCCL_STORE", directory_);
  std::ofstream(directory_ + "/ask.0.1") << std::string(sizeof(Nonce), 'x');
  const auto before = threads();
  const auto id = share_unique_id(env(0, 2), 0.3);
  ASSERT_FALSE(id.ok());
  EXPECT_CONTAINS(id.status().message(), "missing: 1");
  EXPECT_TRUE(fs::is_empty(directory_));
  // A thread that has been joined may be listed for a moment.
  const double deadline = now_seconds() + patience;
  while (threads() != before && now_seconds() < deadline) usleep(1000);
  EXPECT_EQ(threads(), before);
}

TEST_F(ShareId, ThatRankZeroCannotMakeIsToldToTheOthersBeforeTheirTimeIsUp) {
  environment_.set("EPCCL_SOCKET_IFNAME", "=nosuch0");
  environment_.set("EPCCL_STORE", directory_);
  constexpr double long_patience = 60;
  on_ranks(3, [&](int rank) {
    const double began = now_seconds();
    const auto id = share_unique_id(env(rank, 3), long_patience, 0);
    ASSERT_FALSE(id.ok());
    EXPECT_LT(now_seconds() - began, 30) << rank;
    EXPECT_CONTAINS(id.status().message(), rank == 0 ? "nosuch0" : "rank 0 could not make an id");
  });
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(ShareId, ThroughMasterAddress) {
  expect_shared(6, fmt::format("127.0.0.1:{}", quiet_port()));
}

TEST_F(ShareId, PortsThatAreTakenArePassedOver) {
  net::Endpoint at;
  const auto silent = take_a_port(at, 1);  // accepts in its backlog, and never says anything
  ASSERT_TRUE(silent.ok()) << silent.status().message();
  expect_shared(3, fmt::format("127.0.0.1:{}", at.port - 1));
}

TEST_F(ShareId, JobsAtOneAddressDoNotMeet) {
  const std::string address = fmt::format("127.0.0.1:{}", quiet_port());
  std::atomic<int> shared = 0;
  std::vector<UniqueId> ids(4);
  on_ranks(4, [&](int index) {
    const auto id =
        share_unique_id(env(index % 2, 2, address), patience, index / 2);  // attempts stand for jobs
    ASSERT_TRUE(id.ok()) << id.status().message();
    ids[static_cast<size_t>(index)] = *id;
    ++shared;
  });
  ASSERT_EQ(shared, 4);
  EXPECT_EQ(ids[0].bytes, ids[1].bytes);
  EXPECT_EQ(ids[2].bytes, ids[3].bytes);
  EXPECT_NE(ids[0].bytes, ids[2].bytes);
}

TEST_F(ShareId, PortThatIsTakenForAMomentIsWaitedFor) {
  // On a busy machine the moment may be longer than rank 0 waits.
  constexpr double moment = 1.5;
  for (double taken_for = moment; taken_for >= moment;) {
    net::Endpoint at;
    auto taken = take_a_port(at, 0);
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    const IdHandOut hand_out{"127.0.0.1", {at.port}, "our job"};
    const UniqueId id = fresh_id();
    const double began = now_seconds();
    Status given;
    std::jthread giving([&] { given = hand_out.give(id, 2, patience); });
    usleep(100'000);
    *taken = UniqueFd();
    taken_for = now_seconds() - began;
    if (taken_for >= moment) continue;
    EXPECT_TRUE(hand_out.take(1, patience).ok());
    giving.join();
    EXPECT_TRUE(given.ok()) << given.message();
  }
}

TEST_F(ShareId, CallerWithAnotherKeyGetsNothingAndHarmsNobody) {
  const std::vector<uint16_t> ports = quiet_ports();
  const IdHandOut ours{"127.0.0.1", ports, "our job"}, theirs{"127.0.0.1", ports, "their job"};
  const UniqueId id = fresh_id();
  std::jthread giving([&] {
    const Status given = ours.give(id, 2, patience);
    EXPECT_TRUE(given.ok()) << given.message();
  });
  const std::string why = "another job listens at 127.0.0.1:";
  std::string said;  // at first perhaps that nobody listens there yet
  for (int attempt = 0; attempt < 40 && said.find(why) == std::string::npos; ++attempt) {
    const auto taken = theirs.take(1, 0.5);
    ASSERT_FALSE(taken.ok());
    said = taken.status().message();
  }
  EXPECT_CONTAINS(said, why);
  const auto taken = ours.take(1, patience);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  EXPECT_EQ(taken->bytes, id.bytes);
}

/// Rank 0 hands out an id at `rank_0`; others know it at `between`, where the test stands.
struct RelayedHandOut {
  UniqueId id = fresh_id();
  net::Endpoint between = net::resolve("127.0.0.1", 0)->front(), rank_0 = between;
  UniqueFd listener = net::listen_at(between).value();
  Status given;
  std::jthread giving;

  explicit RelayedHandOut(uint16_t port) {
    rank_0.port = port;
    giving = std::jthread([this, port] {
      given = IdHandOut{"127.0.0.1", {port}, "our job"}.give(id, 2, patience);
    });
    while (!net::connect_to(rank_0, patience).ok()) usleep(10'000);
  }

  /// Brings the next caller and rank 0 what the other says (0: the caller, 1: rank 0). `is_lost(from, bytes)`: the caller is cut off
  /// instead; no bytes: the end.
  template <typename IsLost>
  void relay(IsLost is_lost) {
    ASSERT_TRUE(net::wait_for(listener.get(), POLLIN, now_seconds() + patience));
    const UniqueFd caller(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    auto there = net::connect_to(rank_0, patience);
    ASSERT_TRUE(caller && there.ok());
    std::array<pollfd, 2> ends{{{caller.get(), POLLIN, 0}, {there->get(), POLLIN, 0}}};
    for (;;) {
      ASSERT_GT(poll(ends.data(), ends.size(), static_cast<int>(patience * 1e3)), 0);
      std::array<char, 4096> bytes;
      for (size_t from = 0; from < 2; ++from) {
        if (ends[from].revents == 0) continue;
        const ssize_t got = recv(ends[from].fd, bytes.data(), bytes.size(), 0);
        if (is_lost(from, got)) {
          const linger reset{1, 0};
          setsockopt(caller.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
          return;
        }
        if (got <= 0) return;
        ASSERT_EQ(send(ends[1 - from].fd, bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL), got);
      }
    }
  }

  void expect_taken(const Result<UniqueId>& taken) {
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    EXPECT_EQ(taken->bytes, id.bytes);
    giving.join();
    EXPECT_TRUE(given.ok()) << given.message();
  }
};

TEST_F(ShareId, CallerThatDoesNotHearThatItIsCountedCallsAgain) {
  RelayedHandOut hand_out(quiet_ports().front());
  std::jthread relay([&] {
    hand_out.relay([](size_t from, ssize_t) { return from == 0; });
    hand_out.relay([](size_t, ssize_t) { return false; });
  });
  hand_out.expect_taken(IdHandOut{"127.0.0.1", {hand_out.between.port}, "our job"}.take(1, patience));
}

TEST_F(ShareId, CallerThatRankZeroHasCountedIsThroughWhenRankZeroIs) {
  RelayedHandOut hand_out(quiet_ports().front());
  std::jthread relay([&] {
    hand_out.relay([&](size_t from, ssize_t bytes) {
      const bool is_end = from == 1 && bytes <= 0;
      if (is_end) hand_out.listener.reset();  // nobody listens there any more
      return is_end;
    });
  });
  const TakenPort silent;  // nobody of this job, and nobody who would say so
  EXPECT_GE(silent.listens(), 0);
  const double began = now_seconds();
  const auto taken =
      IdHandOut{"127.0.0.1", {hand_out.between.port, silent.endpoint().port}, "our job"}.take(1, patience);
  EXPECT_LT(now_seconds() - began, patience / 2);
  hand_out.expect_taken(taken);
}

TEST_F(ShareId, RankZeroThatIsKnownByNameIsReachedAtAnyOfItsAddresses) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  if (!net::resolve(name, 0).ok()) GTEST_SKIP() << "this machine does not know its own name, " << name;
  const std::string address =
      net::local_address("")->to_string();  // whatever the hosts file says of the name
  const std::vector<uint16_t> ports = quiet_ports();
  const UniqueId id = fresh_id();
  std::jthread giving([&] {
    const Status given = IdHandOut{name, ports, "our job"}.give(id, 2, patience);
    EXPECT_TRUE(given.ok()) << given.message();
  });
  const auto taken = IdHandOut{net::parse_host_port(address)->host, ports, "our job"}.take(1, patience);
  EXPECT_TRUE(taken.ok()) << taken.status().message();
}

// Two steps of one allocation, say. A rank that came to the other job's rank 0 would have its id.
TEST_F(ShareId, JobsWithOneStoreDoNotMeet) {
  environment_.set("EPCCL_STORE", directory_);
  std::vector<pid_t> jobs;
  for (const char* job : {"one", "other"}) {
    jobs.push_back(fork());
    if (jobs.back() != 0) continue;
    setenv("PMIX_NAMESPACE", job, 1);
    for (int attempt = 0; attempt < 3; ++attempt) expect_shared(4, "", attempt);
    _exit(HasFailure() ? 1 : 0);
  }
  for (const pid_t job : jobs) {
    int status = -1;
    ASSERT_EQ(waitpid(job, &status, 0), job);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(fs::is_empty(directory_)) << "nothing stays behind";
}

}  // namespace
}  // namespace epccl::test
