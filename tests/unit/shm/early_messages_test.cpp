// Messages that come before their receives: a few wait in the ring, the rest are copied aside; none holds up what comes behind it.
#include <deque>
#include <string>

#include "node.hpp"
#include "transports/shm/shm_messages.hpp"

namespace epccl::transports {
namespace {

using State = Completion::State;

/// One rank sends small messages that the other, for now, does not receive.
class EarlyMessages : public testing::TestWithParam<MessageKey> {
 protected:
  EarlyMessages() : node_(2), sender_(node_[0], true), receiver_(node_[1], true) {}

  struct Early {
    explicit Early(MessageKey number)
        : key(number), text(40 + number, static_cast<char>('a' + number % 26)) {}
    MessageKey key;
    std::string text, got = std::string(text.size(), '-');
    Completion sent, received;
  };

  void move() {
    for (int i = 0; i < 4; ++i) sender_.progress(), receiver_.progress();
  }
  void send_some() {
    for (MessageKey key = 0; key < GetParam(); ++key) {
      Early& one = early_.emplace_back(key);
      ASSERT_TRUE(sender_.send(1, key, one.text.data(), one.text.size(), one.sent).ok());
      if (key % 3 == 0) move();
    }
    move();
    for (const Early& one : early_) EXPECT_EQ(one.sent.state, State::done) << one.key << " needs no receive";
  }
  void receive(Early& one) {
    ASSERT_TRUE(receiver_.recv(0, one.key, one.got.data(), one.got.size(), one.received).ok());
    move();
    EXPECT_EQ(one.received.state, State::done);
    EXPECT_EQ(one.received.bytes, one.text.size());
    EXPECT_EQ(one.got, one.text);
  }

  Node node_;
  ShmMessages sender_, receiver_;
  std::deque<Early> early_;
};

INSTANTIATE_TEST_SUITE_P(FewAndMany, EarlyMessages, testing::Values(1, 3, MessageRing::slots - 1, 40));

TEST_P(EarlyMessages, AreReceivedInAnyOrder) {
  send_some();
  for (auto one = early_.rbegin(); one != early_.rend(); ++one) receive(*one);
  early_.clear();
  send_some();
  for (Early& one : early_) receive(one);
}

TEST_P(EarlyMessages, DoNotHoldUpAnotherBehindThem) {
  send_some();
  Early last(1000);
  ASSERT_TRUE(receiver_.recv(0, last.key, last.got.data(), last.got.size(), last.received).ok());
  ASSERT_TRUE(sender_.send(1, last.key, last.text.data(), last.text.size(), last.sent).ok());
  move();
  EXPECT_EQ(last.received.state, State::done);
  EXPECT_EQ(last.got, last.text);
  for (Early& one : early_) receive(one);
}

// A large message is the sender's until the other end has said that it has it.
TEST_P(EarlyMessages, DoNotHoldUpAnAnswer) {
  send_some();
  const std::string large(300'000, 'L');
  std::string got(large.size(), '-');
  Completion sent, received;
  ASSERT_TRUE(sender_.recv(1, 7, got.data(), got.size(), received).ok());
  ASSERT_TRUE(receiver_.send(0, 7, large.data(), large.size(), sent).ok());
  move();
  EXPECT_EQ(received.state, State::done);
  EXPECT_EQ(sent.state, State::done);
  EXPECT_EQ(got, large);
  for (Early& one : early_) receive(one);
}

TEST_P(EarlyMessages, FailTheReceiveThatIsTooShortForThem) {
  send_some();
  Completion received;
  std::string room(10, '-');
  ASSERT_TRUE(receiver_.recv(0, 0, room.data(), room.size(), received).ok());
  EXPECT_EQ(received.state, State::failed);
  EXPECT_EQ(received.status.message(), "local rank 0 sent 40 bytes where 10 are expected");
}

}  // namespace
}  // namespace epccl::transports
