// Strangers at the rendezvous' port: refused, without effect on the ranks.
#include <sys/socket.h>

#include <thread>

#include "ranks.hpp"
#include "runtime/bootstrap/handshake.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/bootstrap/rendezvous.hpp"
#include "runtime/bootstrap/wire.hpp"

namespace epccl::test {
namespace {

using namespace runtime;

class Intruder : public testing::Test {
 protected:
  Intruder() : id_(fresh_id()), rendezvous_(*decode(id_)) {}

  UniqueFd connect() const { return net::connect_to(rendezvous_.endpoint, patience).value(); }

  static void say(const UniqueFd& fd, std::span<const std::byte> bytes) {
    // The hub may hang up in the middle of it.
    while (!bytes.empty()) {
      const ssize_t sent = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return;
      bytes = bytes.subspan(static_cast<size_t>(sent));
    }
  }
  /// True when the hub closes the connection, with or without a reset.
  static bool hung_up(const UniqueFd& fd) {
    const double deadline = now_seconds() + patience;
    std::byte drain[256];
    while (net::wait_for(fd.get(), POLLIN, deadline)) {
      if (recv(fd.get(), drain, sizeof drain, 0) <= 0) return true;
    }
    return false;
  }
  static wire::Frame hear(const UniqueFd& fd) {
    wire::Splitter splitter;
    while (true) {
      if (auto frame = splitter.next(4096).value()) return *frame;
      std::byte chunk[256];
      EXPECT_TRUE(net::wait_for(fd.get(), POLLIN, now_seconds() + patience));
      const ssize_t got = recv(fd.get(), chunk, sizeof chunk, 0);
      if (got <= 0) return {};
      splitter.append(std::span(chunk).first(static_cast<size_t>(got)));
    }
  }
  /// A rank of its own making: proves itself, and is there.
  void join(const UniqueFd& fd, int ranks, const Member& member) const {
    Nonce mine{}, of_hub;
    say(fd, wire::Writer(wire::Type::hello).u32(wire::protocol_version).raw(mine).take());
    const wire::Frame frame = hear(fd);
    ASSERT_EQ(frame.type, wire::Type::challenge);
    wire::Reader body(frame.body);
    body.raw(of_hub);
    wire::Writer claims(wire::Type::join);
    claims.i32(member.rank).i32(ranks).i32(member.pid).text(member.host).u64(0).u64(member.process);
    const Proof proof = rank_proof(rendezvous_.secret, mine, of_hub, claims.body());
    say(fd, wire::Writer(wire::Type::join).raw(proof).raw(claims.body()).take());
  }
  /// The ranks that the hub takes for those of its own process, as it tells all when the last has joined.
  static std::vector<int> hub_ranks_told(const UniqueFd& fd) {
    const wire::Frame frame = hear(fd);
    EXPECT_EQ(frame.type, wire::Type::joined);
    wire::Reader body(frame.body);
    body.text();
    std::vector<int> ranks(body.u32());
    for (int& rank : ranks) rank = body.i32();
    EXPECT_TRUE(body.complete());
    return ranks;
  }
  void expect_unharmed() const {
    auto lines = join_all(id_, 3);
    for (const auto& line : lines) ASSERT_TRUE(line);
    on_ranks(3, [&](int rank) { EXPECT_TRUE(lines[static_cast<size_t>(rank)]->barrier().ok()); });
  }

  UniqueId id_;
  Rendezvous rendezvous_;
};

TEST_F(Intruder, RubbishIsHungUpOn) {
  auto random = seeded_random();
  for (int round = 0; round < 50; ++round) {
    wire::Bytes rubbish(4 + random() % 2000);
    for (std::byte& each : rubbish) each = static_cast<std::byte>(random());
    rubbish[3] = std::byte{0xff};  // a length no stranger may announce: otherwise the hub waits for the rest
    const UniqueFd fd = connect();
    say(fd, rubbish);
    EXPECT_TRUE(hung_up(fd));
  }
  expect_unharmed();
}

TEST_F(Intruder, FrameOfWrongTypeIsHungUpOn) {
  for (const auto type : {wire::Type::join, wire::Type::gather, wire::Type::leave, wire::Type::notice}) {
    const UniqueFd fd = connect();
    say(fd, wire::Writer(type).u32(1).take());
    EXPECT_TRUE(hung_up(fd));
  }
  expect_unharmed();
}

TEST_F(Intruder, AnotherVersionOfTheProtocolIsToldSoAndHungUpOn) {
  const UniqueFd fd = connect();
  say(fd, wire::Writer(wire::Type::hello).u32(wire::protocol_version + 1).raw(Nonce{}).take());
  const wire::Frame frame = hear(fd);
  EXPECT_EQ(frame.type, wire::Type::refused);
  wire::Reader body(frame.body);
  EXPECT_CONTAINS(body.text(),
                  fmt::format("version {} of the library's protocol", wire::protocol_version + 1));
  EXPECT_TRUE(hung_up(fd));
  expect_unharmed();
}

// As a rank whose library is older or newer than the one of the process that made the unique id.
TEST(AnotherVersion, EndsTheJoinAtOnce) {
  net::Endpoint at = net::local_address("lo").value();
  const UniqueFd listener = net::listen_at(at).value();
  std::thread hub([&] {
    ASSERT_TRUE(net::wait_for(listener.get(), POLLIN, now_seconds() + patience));
    const UniqueFd line(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const wire::Bytes refusal = wire::Writer(wire::Type::refused).text("it is of another age").take();
    EXPECT_EQ(send(line.get(), refusal.data(), refusal.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(refusal.size()));
    std::byte rest[256];
    while (recv(line.get(), rest, sizeof rest, 0) > 0) {
    }
  });
  const double begin = now_seconds();
  const auto line = Bootstrap::join(encode({at, {}}), 1, 2, 10 * patience);
  hub.join();
  ASSERT_FALSE(line.ok());
  EXPECT_EQ(line.status().code(), Code::invalid_usage);
  EXPECT_CONTAINS(line.status().message(), "rank 1: refused by the rendezvous: it is of another age");
  EXPECT_LT(now_seconds() - begin, 5 * patience);
}

TEST_F(Intruder, ClaimToBeARankWithoutTheSecretIsHungUpOn) {
  const UniqueFd fd = connect();
  wire::Writer claims(wire::Type::join);
  claims.i32(1).i32(3).i32(4242).text("elsewhere").u64(0).u64(99);
  say(fd, wire::Writer(wire::Type::hello).u32(wire::protocol_version).raw(Nonce{}).take());
  say(fd, wire::Writer(wire::Type::join).raw(Proof{}).raw(claims.body()).take());
  EXPECT_TRUE(hung_up(fd));
  expect_unharmed();
}

TEST_F(Intruder, SilentConnectionIsDroppedAndHoldsUpNobody) {
  const UniqueFd silent = connect();
  expect_unharmed();
  EXPECT_TRUE(hung_up(silent));
}

TEST_F(Intruder, ManyConnectionsHoldUpNobody) {
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(connect());
  expect_unharmed();
}

TEST_F(Intruder, RankThatBreaksTheProtocolCountsAsDead) {
  const UniqueFd fd = connect();
  join(fd, 2, {1, 4242, "elsewhere", 99});
  const auto line = Bootstrap::join(id_, 0, 2, patience);
  ASSERT_TRUE(line.ok()) << line.status().message();

  say(fd, wire::Writer(wire::Type::publish).u32(0xffffffff).take());
  const auto notice = wait_for_notice(**line);
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->kind, Notice::Kind::died);
  EXPECT_CONTAINS(notice->text, "rank 1 (host elsewhere, pid 4242) died: breach of protocol");
}

// It may not stand where what is for the rank of that number is sent.
TEST_F(Intruder, RankThatCannotBeIsRefusedAndTheOneOfItsNumberComesAllTheSame) {
  for (const int rank : {1, 2}) {
    const UniqueFd fd = connect();
    join(fd, 0, {rank, 4242, "elsewhere", 99});
    const wire::Frame frame = hear(fd);
    ASSERT_EQ(frame.type, wire::Type::refused);
    wire::Reader body(frame.body);
    EXPECT_CONTAINS(body.text(), "of 0 ranks cannot be");
    EXPECT_TRUE(hung_up(fd));
  }
  expect_unharmed();
}

// Containers that share their host's network have its name, and in each the first process is process 1.
TEST_F(Intruder, RankOfAContainerWithTheHubsHostAndPidIsOfAnotherProcess) {
  const UniqueFd fd = connect();
  join(fd, 1, {0, getpid(), this_host(), this_process() + 1});
  EXPECT_EQ(hub_ranks_told(fd), std::vector<int>{});
}

TEST_F(Intruder, RankOfTheHubsProcessIsKnownAsSuch) {
  const UniqueFd fd = connect();
  join(fd, 1, {0, getpid(), this_host(), this_process()});
  EXPECT_EQ(hub_ranks_told(fd), std::vector{0});
}

}  // namespace
}  // namespace epccl::test
