// Messages that are offered instead of sent: who can takes them, who cannot declines, and an offer holds until its owner ends it.
#include <cstring>
#include <string>
#include <vector>

#include "node.hpp"
#include "transports/shm/shm_messages.hpp"

namespace epccl::transports {
namespace {

using State = Completion::State;

/// Two ranks that send each other messages.
class Offers : public testing::Test {
 protected:
  Offers() : node_(2), sender_(node_[0], true), receiver_(node_[1], true) {}
  void move() {
    for (int i = 0; i < 4; ++i) sender_.progress(), receiver_.progress();
  }
  void offer(MessageKey key, uint64_t bytes) {
    BufferRef buffer;
    buffer.address = 0x1000 + key;
    buffer.bytes = bytes;
    ASSERT_TRUE(sender_.offer(1, key, buffer, sent_).ok());
  }
  void receive_any(MessageKey key, size_t bytes) {
    ASSERT_TRUE(receiver_.recv_any(0, key, bytes, arrival_, received_).ok());
  }

  Node node_;
  ShmMessages sender_, receiver_;
  Completion sent_, received_;
  Arrival arrival_;
};

TEST_F(Offers, AreTakenWheneverTheReceiveIsPosted) {
  for (const bool first : {true, false}) {
    if (first) receive_any(7, 100);
    offer(7, 100);
    move();
    if (!first) receive_any(7, 100);
    EXPECT_EQ(received_.state, State::done);
    EXPECT_EQ(received_.bytes, 100U);
    ASSERT_TRUE(arrival_.is_offer);
    EXPECT_EQ(arrival_.buffer.address, 0x1007U);
    EXPECT_EQ(sent_.state, State::pending) << "it is read still";
    receiver_.answer(0, arrival_, true);
    move();
    EXPECT_EQ(sent_.state, State::done);
  }
}

TEST_F(Offers, AreDeclinedByAReceiveIntoHostMemoryWhichThenGetsTheMessage) {
  for (const bool first : {true, false}) {
    std::string text = "what was offered", got(text.size(), '-');
    const auto receive = [&] { ASSERT_TRUE(receiver_.recv(0, 3, got.data(), got.size(), received_).ok()); };
    if (first) receive();
    offer(3, text.size());
    move();
    if (!first) receive();
    move();
    EXPECT_EQ(sent_.state, State::declined);
    EXPECT_EQ(received_.state, State::pending);
    ASSERT_TRUE(sender_.send(1, 3, text.data(), text.size(), sent_).ok());
    move();
    EXPECT_EQ(received_.state, State::done);
    EXPECT_EQ(got, text);
  }
}

// A large message lies in its sender's buffer until it is asked for.
TEST_F(Offers, AndMessagesOfASenderThatGaveUpAreNotRead) {
  const std::string text(100'000, 'x');
  std::string got(text.size(), '-');
  ASSERT_TRUE(sender_.send(1, 3, text.data(), text.size(), sent_).ok());
  move();
  sender_.cancel_all();
  EXPECT_EQ(sent_.state, State::failed);
  ASSERT_TRUE(receiver_.recv(0, 3, got.data(), got.size(), received_).ok());
  move();
  EXPECT_EQ(received_.state, State::failed);
  EXPECT_NE(received_.status.message().find("local rank 0 has given up"), std::string::npos)
      << received_.status.message();
  EXPECT_EQ(got, std::string(text.size(), '-'));
}

TEST(ShmMessagesInFragments, AreForgottenWithTheirLast) {
  Node node(2);
  ShmMessages sender(node[0], false), receiver(node[1], false);
  const std::string text(100'000, 'x');
  std::string got(text.size(), '-');
  Completion sent, received;
  ASSERT_TRUE(receiver.recv(0, 1, got.data(), got.size(), received).ok());
  ASSERT_TRUE(sender.send(1, 1, text.data(), text.size(), sent).ok());
  for (int i = 0; i < 1000 && !received.finished(); ++i) sender.progress(), receiver.progress();
  ASSERT_EQ(received.state, State::done);
  EXPECT_EQ(got, text);
  received = {};  // its owner's again, for something else
  receiver.cancel_all();
  EXPECT_EQ(received.state, State::idle);
}

TEST_F(Offers, AreNotNeededByAReceiveThatWouldTakeThem) {
  for (const size_t bytes : {size_t{0}, size_t{10}, size_t{100'000}}) {
    std::vector<char> data(bytes, 'x');
    receive_any(5, bytes);
    ASSERT_TRUE(sender_.send(1, 5, data.data(), bytes, sent_).ok());
    move();
    ASSERT_EQ(received_.state, State::done) << received_.status.message();
    EXPECT_EQ(sent_.state, State::done);
    EXPECT_FALSE(arrival_.is_offer);
    EXPECT_EQ(received_.bytes, bytes);
    EXPECT_TRUE(bytes == 0 || std::memcmp(arrival_.data.get(), data.data(), bytes) == 0);
  }
}

TEST_F(Offers, ThatWereDeclinedComeToTheSameReceiveAsMessages) {
  receive_any(5, 10);
  offer(5, 10);
  move();
  Arrival offer;
  std::swap(offer, arrival_);
  receive_any(5, 10);
  receiver_.answer(0, offer, false);
  move();
  EXPECT_EQ(sent_.state, State::declined);
  ASSERT_TRUE(sender_.send(1, 5, "012345678", 10, sent_).ok());
  move();
  ASSERT_EQ(received_.state, State::done);
  EXPECT_STREQ(reinterpret_cast<const char*>(arrival_.data.get()), "012345678");
}

TEST_F(Offers, EndWithWhatIsGivenUp) {
  offer(1, 10);
  sender_.cancel_all();
  EXPECT_EQ(sent_.state, State::failed);
}

TEST(Readers, AreSeenUntilTheyAreThroughAndRefusedAfterTheEnd) {
  Node node(3);
  EXPECT_EQ(node[0].reader(), -1);
  ASSERT_TRUE(node[2].begin_reading(0));
  ASSERT_TRUE(node[2].begin_reading(0));
  ASSERT_TRUE(node[1].begin_reading(2));
  EXPECT_EQ(node[0].reader(), 2);
  EXPECT_EQ(node[2].reader(), 1);
  node[0].end_offers();
  EXPECT_FALSE(node[1].begin_reading(0));
  node[2].end_reading(0);
  EXPECT_EQ(node[0].reader(), 2);
  node[2].end_reading(0);
  EXPECT_EQ(node[0].reader(), -1);
}

}  // namespace
}  // namespace epccl::transports
