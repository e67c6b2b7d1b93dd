// Several rails, and what becomes of messages when one fails: pulled cables and lost packets, in soft-RoCE.
#include <gtest/gtest.h>

#include <deque>
#include <optional>

#include "soft_roce.hpp"

namespace epccl::transports {
namespace {

class VerbsRails : public OnSoftRoce {};

template <typename AnyFabric>
bool exchange(AnyFabric& fabric, std::deque<Message>& messages) {
  for (Message& message : messages) {
    if (!message.recv(fabric).ok() || !message.send(fabric).ok()) return false;
  }
  return fabric.drive_until([&] {
    return std::all_of(messages.begin(), messages.end(), [](const auto& m) { return m.finished(); });
  });
}

void connect(auto& fabric, MessageKey key = 1 << 20) {
  Message hello(0, 1, key, 10);
  ASSERT_TRUE(hello.recv(fabric).ok());
  ASSERT_TRUE(hello.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(hello.receiving));
}

TEST_F(VerbsRails, ShareALargeMessageAndEachSignalsItsPart) {
  Fabric<Verbs> fabric(2);
  ASSERT_EQ(fabric[0].rails().size(), 2u);
  connect(fabric);
  const verbs::WorkCounters before = fabric[0].work(), receiver_before = fabric[1].work();
  std::deque<Message> messages;
  messages.emplace_back(0, 1, 1, 1 << 20);
  ASSERT_TRUE(exchange(fabric, messages));
  messages[0].expect_arrived();
  EXPECT_EQ(fabric[0].work().signals - before.signals, 2u);
  EXPECT_EQ(fabric[0].work().sends - before.sends, 0u) << "the receiver said where; nobody had to ask";
  EXPECT_EQ(fabric[1].work().sends - receiver_before.sends, 1u) << "the advert";
  EXPECT_EQ(fabric[1].work().receive_completions - receiver_before.receive_completions, 2u);
}

TEST_F(VerbsRails, CarryAMessageThatIsNotWorthSharingAlone) {
  Fabric<Verbs> fabric(2);
  connect(fabric);
  const verbs::WorkCounters before = fabric[0].work();
  std::deque<Message> messages;
  messages.emplace_back(0, 1, 1, 100000);
  ASSERT_TRUE(exchange(fabric, messages));
  EXPECT_EQ(fabric[0].work().signals - before.signals, 1u);
}

TEST_F(VerbsRails, ThatFailMoveTheirTrafficAndNothingIsLostOrDoubled) {
  auto random = seeded_random();
  for (const char* cable : {"v0r0", "v0r1"}) {
    SCOPED_TRACE(cable);
    std::deque<Message> messages, again;  // before the fabric: what is pending when it ends fails then
    Fabric<VerbsWithFailover> fabric(2);
    connect(fabric);
    // Those that are sent into the void are large enough to be on both rails.
    constexpr MessageKey count = 120, pulled_at = count / 2, into_the_void = pulled_at + 4;
    const auto in_void = [&](MessageKey key) { return key >= pulled_at && key < into_the_void; };
    for (MessageKey key = 0; key < count; ++key)
      messages.emplace_back(static_cast<int>(key % 2), static_cast<int>(1 - key % 2), key,
                            in_void(key) ? size_t{1} << 20 : random() % (size_t{1} << (random() % 21)));
    for (Message& message : messages) ASSERT_TRUE(message.recv(fabric).ok());
    for (size_t i = 0; i < messages.size(); ++i) {
      if (i == pulled_at) {
        ASSERT_TRUE(fabric.drive_until([&] { return messages[0].finished() && messages[1].finished(); }));
        link(cable, "down");
      }
      ASSERT_TRUE(messages[i].send(fabric).ok());
      if (!in_void(i) && random() % 4 == 0) fabric.progress();
    }
    ASSERT_TRUE(fabric.drive_until([&] {
      return std::all_of(messages.begin(), messages.end(), [](const auto& m) { return m.finished(); });
    }));
    for (const Message& message : messages) message.expect_arrived();
    EXPECT_TRUE(fabric.drive_until(
        [&] { return fabric[0].work().rails_lost == 1 && fabric[1].work().rails_lost == 1; }));
    EXPECT_GT(fabric[0].work().moved + fabric[1].work().moved, 0u) << "it was lost with nothing on it";
    EXPECT_TRUE(fabric.drive_until([&] { return fabric[0].drained() && fabric[1].drained(); }));
    // Would get what came twice.
    for (const Message& message : messages)
      again.emplace_back(message.source, message.destination, message.key, 0);
    for (Message& message : again) ASSERT_TRUE(message.recv(fabric).ok());
    fabric.settle();
    for (const Message& message : again) EXPECT_FALSE(message.receiving.finished()) << "key " << message.key;
    link(cable, "up");
  }
}

/// Small messages from rank 0 to rank 1, which go over rail 1, while one of its ends sends into the void.
class VerbsLostRail : public VerbsRails {
 protected:
  void SetUp() override {
    VerbsRails::SetUp();
    if (!IsSkipped()) made_.emplace(2);
  }
  Fabric<VerbsWithFailover>& fabric() { return *made_; }

  static constexpr MessageKey count = 20;

  void send_while_nothing_comes_from(const char* cable) {
    connect(fabric());
    shell(std::string("tc qdisc add dev ") + cable + " root netem loss 100%");
    for (MessageKey key = 0; key < count; ++key) messages.emplace_back(0, 1, key, 100 * key);
    ASSERT_TRUE(exchange(fabric(), messages));
    ASSERT_TRUE(fabric().drive_until([&] { return fabric()[0].drained() && fabric()[1].drained(); }));
    EXPECT_EQ(fabric()[0].work().rails_lost, 1u);
    for (const Message& message : messages) message.expect_arrived();
  }
  void expect_nothing_came_twice() {
    for (const Message& message : messages) again.emplace_back(0, 1, message.key, message.sent.size());
    for (Message& message : again) ASSERT_TRUE(message.recv(fabric()).ok());
    fabric().settle();
    for (const Message& message : again) EXPECT_FALSE(message.receiving.finished()) << "key " << message.key;
  }

  std::deque<Message> messages, again;  // before the fabric: what is pending when it ends fails then
  std::optional<Fabric<VerbsWithFailover>> made_;
};

TEST_F(VerbsLostRail, WhatHadArrivedAndOnlyWasNotAcknowledgedIsNotSentAgain) {
  send_while_nothing_comes_from("v1r1");
  EXPECT_EQ(fabric()[0].work().moved, 0u);
  expect_nothing_came_twice();
}

TEST_F(VerbsLostRail, WhatHadNotArrivedIsSentAgainAllOfIt) {
  send_while_nothing_comes_from("v0r1");
  EXPECT_EQ(fabric()[0].work().moved, count);
  expect_nothing_came_twice();
}

TEST_F(VerbsRails, ThatComeBackAreUsedAgain) {
  Fabric<VerbsWithFailover> fabric(2);
  connect(fabric);
  link("v0r1", "down");
  MessageKey key = 0;
  const auto one_megabyte = [&] {
    const uint64_t before = fabric[0].work().signals;
    std::deque<Message> messages;
    messages.emplace_back(0, 1, key++, 1 << 20);
    EXPECT_TRUE(exchange(fabric, messages));
    messages[0].expect_arrived();
    return fabric[0].work().signals - before;
  };
  ASSERT_TRUE(fabric.drive_until([&] { return one_megabyte() == 1; }))
      << "the rail is used though it is down";
  link("v0r1", "up");
  EXPECT_TRUE(fabric.drive_until([&] { return one_megabyte() == 2; })) << "the rail is not used again";
}

TEST_F(VerbsRails, WithoutFailoverEndWhatIsPendingNamingPeerDeviceAndPort) {
  {
    Fabric<Verbs> fabric(2);
    connect(fabric);
    link("v0r0", "down");
    link("v0r1", "down");
    std::deque<Message> messages;
    for (MessageKey key = 0; key < 4; ++key) messages.emplace_back(0, 1, key, 1 << 20);
    ASSERT_TRUE(exchange(fabric, messages));
    const std::string& said = messages[0].sending.status.message();
    ASSERT_EQ(messages[0].sending.state, Completion::State::failed);
    EXPECT_NE(said.find("sending 1048576 bytes to rank 1"), std::string::npos) << said;
    EXPECT_NE(said.find("over n0r"), std::string::npos) << said;
    EXPECT_NE(said.find("port 1"), std::string::npos) << said;
    EXPECT_NE(said.find("status "), std::string::npos) << said;
    Completion later;
    EXPECT_EQ(fabric[0].send(1, 99, "x", 1, later).code(), Code::remote_error);
  }
  link("v0r0", "up");
  link("v0r1", "up");
  ::usleep(300000);
  Fabric<Verbs> fabric(2);
  connect(fabric);  // as before
}

ibv_mtu mtu_of(const char* device) {
  const auto ports = verbs::open_ports(**verbs::Library::get(), {.devices = std::string("=") + device});
  return ports.ok() ? ports->front().port.mtu : ibv_mtu{};
}

TEST_F(VerbsRails, WhoseEndsHaveDifferentMtusUseTheSmaller) {
  const double deadline = now_seconds() + patience_seconds;
  const auto set_mtu = [&](const char* bytes, ibv_mtu expected) {
    shell(std::string("ip link set v0r0 mtu ") + bytes);
    while (mtu_of("n0r0") != expected && now_seconds() < deadline) ::usleep(1000);
    ASSERT_EQ(mtu_of("n0r0"), expected);
  };
  set_mtu("1500", IBV_MTU_1024);
  ASSERT_EQ(mtu_of("n1r0"), IBV_MTU_4096);
  {
    Fabric<Verbs> fabric(2);
    std::deque<Message> messages;
    for (MessageKey key = 0; key < 8; ++key)
      messages.emplace_back(static_cast<int>(key % 2), static_cast<int>(1 - key % 2), key, 150000 * key);
    ASSERT_TRUE(exchange(fabric, messages));
    for (const Message& message : messages) message.expect_arrived();
  }
  set_mtu("4300", IBV_MTU_4096);
}

TEST_F(VerbsRails, DeliverEverythingOverALineThatLosesPackets) {
  auto random = seeded_random();
  shell("tc qdisc add dev v0r0 root netem loss 2%; tc qdisc add dev v0r1 root netem loss 2%");
  Fabric<Verbs> fabric(2);
  std::deque<Message> messages;
  for (MessageKey key = 0; key < 40; ++key)
    messages.emplace_back(static_cast<int>(key % 2), static_cast<int>(1 - key % 2), key, random() % 60000);
  ASSERT_TRUE(exchange(fabric, messages));
  for (const Message& message : messages) message.expect_arrived();
}

}  // namespace
}  // namespace epccl::transports
