// The choice of a network transport: what can be driven, and what two ranks measure. Measured is TCP here, under both names;
// tests/rdma has the real ones.
#include "runtime/comm/network_choice.hpp"

#include <gtest/gtest.h>

#include "../bootstrap/ranks.hpp"
#include "base/net.hpp"
#include "transports/tcp/tcp_transport.hpp"

namespace epccl::runtime {
namespace {

using transports::MessageTransport;
using transports::TcpTransport;

TEST(NetworkChoice, WithoutAWordGoesByWhatEveryRankCanDrive) {
  for (const NetworkKind kind : {NetworkKind::automatic, NetworkKind::measured}) {
    EXPECT_EQ(choose_network(kind, 0).kind, NetworkKind::tcp);
    EXPECT_EQ(choose_network(kind, ucx_driver).kind, NetworkKind::ucx);
    EXPECT_EQ(choose_network(kind, verbs_driver).kind, NetworkKind::verbs);
    EXPECT_EQ(choose_network(kind, all_rdma_drivers).kind, NetworkKind::verbs);
  }
}

TEST(NetworkChoice, IsWhatTheUserInsistsOn) {
  for (const NetworkKind kind : {NetworkKind::tcp, NetworkKind::ucx, NetworkKind::verbs, NetworkKind::none}) {
    const NetworkChoice choice = choose_network(kind, 0);
    EXPECT_EQ(choice.kind, kind);
    EXPECT_EQ(choice.why, "as EPCCL_NET says");
  }
}

TEST(NetworkComparison, TakesVerbsUnlessUcxIsFasterByMoreThanChance) {
  const MessageTimes times{10e-6, 100e-6};
  EXPECT_EQ(compare_networks(times, times).kind, NetworkKind::verbs);
  EXPECT_EQ(compare_networks(times, MessageTimes{9.5e-6, 95e-6}).kind, NetworkKind::verbs);
  EXPECT_EQ(compare_networks(times, MessageTimes{8e-6, 90e-6}).kind, NetworkKind::ucx);
  EXPECT_EQ(compare_networks(times, MessageTimes{5e-6, 190e-6}).kind, NetworkKind::verbs)
      << "both sizes count";
  EXPECT_EQ(
      compare_networks(times, times).why,
      "measured: verbs 10.0 us for 64 bytes, 100 us for 1 MiB; ucx 10.0 us for 64 bytes, 100 us for 1 MiB");
}

TEST(NetworkComparison, TakesNoneThatFailed) {
  const Result<MessageTimes> works = MessageTimes{10e-6, 100e-6},
                             fails = error(Code::remote_error, "no answer");
  EXPECT_EQ(compare_networks(works, fails).kind, NetworkKind::verbs);
  EXPECT_EQ(compare_networks(fails, works).kind, NetworkKind::ucx);
  EXPECT_EQ(compare_networks(fails, fails).kind, NetworkKind::verbs) << "as without a measurement";
  EXPECT_CONTAINS(compare_networks(fails, works).why, "verbs failed (no answer)");
}

Result<std::unique_ptr<MessageTransport>> open_tcp(Bootstrap& bootstrap, int rank, const std::string& key) {
  EPCCL_ASSIGN(const net::Endpoint here, net::local_address("lo"));
  EPCCL_ASSIGN(auto tcp, TcpTransport::create(rank, 3, here, [&bootstrap, key](int peer) {
                 return bootstrap.lookup(peer, key);
               }));
  EPCCL_TRY(bootstrap.publish(key, tcp->address()));
  return std::unique_ptr<MessageTransport>(std::move(tcp));
}

/// Three ranks choose; 0 and 2 measure. `can_open(rank, kind)`.
std::vector<NetworkChoice> measure(const std::function<bool(int, NetworkKind)>& can_open,
                                   double timeout = 40) {
  auto lines = test::join_all(test::fresh_id(), 3);
  std::vector<NetworkChoice> choices(3);
  test::on_ranks(3, [&](int rank) {
    Bootstrap& line = *lines[static_cast<size_t>(rank)];
    auto choice = measure_networks(
        line, rank, 0, 2, timeout,
        [&](NetworkKind kind, const std::string& key) -> Result<std::unique_ptr<MessageTransport>> {
          EXPECT_NE(rank, 1) << "it only has to know the outcome";
          if (!can_open(rank, kind)) return error(Code::system_error, "no device");
          return open_tcp(line, rank, key);
        });
    EXPECT_TRUE(choice.ok()) << choice.status().message();
    if (choice.ok()) choices[static_cast<size_t>(rank)] = std::move(choice).value();
  });
  for (auto& line : lines) line->leave(Bootstrap::any_call);
  return choices;
}

TEST(NetworkMeasurement, GivesEveryRankTheSameChoiceAndItsNumbers) {
  const auto choices = measure([](int, NetworkKind) { return true; });
  for (const NetworkChoice& choice : choices) {
    EXPECT_EQ(choice.kind, choices[0].kind);
    EXPECT_EQ(choice.why, choices[0].why);
  }
  EXPECT_CONTAINS(choices[0].why, "measured: verbs ");
  EXPECT_CONTAINS(choices[0].why, "(ranks 0 and 2)");
  EXPECT_EQ(choices[0].why.find("failed"), std::string::npos) << choices[0].why;
}

TEST(NetworkMeasurement, OfWhatOneRankCannotOpenTakesTheOther) {
  for (const int without : {0, 2}) {
    const auto choices =
        measure([&](int rank, NetworkKind kind) { return rank != without || kind != NetworkKind::verbs; });
    for (const NetworkChoice& choice : choices) EXPECT_EQ(choice.kind, NetworkKind::ucx);
    EXPECT_CONTAINS(choices[1].why, "verbs failed (");
    EXPECT_CONTAINS(choices[1].why, "no device");
  }
}

TEST(NetworkMeasurement, ThatTheOthersWaitForTooShortlyGoesOnWithoutNumbers) {
  const auto choices = measure([](int, NetworkKind) { return true; }, 0);
  for (const NetworkChoice& choice : choices) EXPECT_EQ(choice.kind, NetworkKind::verbs);
  EXPECT_CONTAINS(choices[1].why, "did not answer in time");
}

TEST(NetworkMeasurement, EndsWhenThePeerDoesNotAnswer) {
  auto lines = test::join_all(test::fresh_id(), 3);
  auto silent = open_tcp(*lines[2], 2, "tcp"), measuring = open_tcp(*lines[0], 0, "tcp");
  ASSERT_TRUE(silent.ok() && measuring.ok());
  const auto times = time_messages(**measuring, 2, true, 0.05);
  EXPECT_FALSE(times.ok());
  EXPECT_CONTAINS(times.status().message(), "rank 2 did not answer in time");
  for (auto& line : lines) line->leave(Bootstrap::any_call);
}

}  // namespace
}  // namespace epccl::runtime
