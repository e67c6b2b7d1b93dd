// Messages cut alike at both ends, each of which has them where it likes: a piece that is not full is the last.
#include "runtime/queues/message_pieces.hpp"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "wire.hpp"

namespace epccl::runtime {
namespace {

using Message = MessagePieces::Message;
using Way = Message::Way;

constexpr uint64_t piece = 300;

/// One rank with memory of every kind. Which each message is in nobody else knows.
class Mixed {
 public:
  Mixed(Wire& wire, int rank)
      : network_(wire, rank, true), pieces_(network_, piece), peer_(1 - rank), is_sender_(rank == 0) {
    auto stage = PinnedStage::make(device::host_device(), 1000, piece, 2);
    EXPECT_TRUE(stage.ok());
    stage_ = std::move(stage).value();
    pieces_.begin(stage_.get(), piece, 1);
  }
  void start(uint32_t number, std::vector<std::byte>& memory, Way way, bool is_held = false) {
    Message message;
    message.token = number;
    message.peer = peer_;
    message.pieces = static_cast<uint32_t>(memory.size() / piece + 1);
    message.key = number;
    message.second_key = uint64_t{1} << 40 | uint64_t{number} << 20;
    message.memory = memory.data();
    message.bytes = memory.size();
    message.way = way;
    message.lies_in = way == Way::direct ? &lent_ : nullptr;
    message.is_send = is_sender_;
    message.is_held = is_held;
    pieces_.add(message);
  }
  bool move() {
    const auto moved = pieces_.move();
    EXPECT_TRUE(moved.ok()) << moved.status().message();
    while (auto ended = pieces_.ended()) {
      EXPECT_TRUE(outcomes.emplace(ended->message.token, std::move(*ended)).second) << "it ended twice";
    }
    return moved.ok() && *moved;
  }
  MessagePieces& pieces() { return pieces_; }

  std::map<uint64_t, MessagePieces::Outcome> outcomes;

 private:
  WireEnd network_;
  std::unique_ptr<PinnedStage> stage_;
  MessagePieces pieces_;
  transports::DeviceMemory lent_;
  const int peer_;
  const bool is_sender_;
};

Way any_way(std::mt19937_64& random) {
  return static_cast<Way>(random() % 3);
}

TEST(MessagePiecesTest, ArriveWhereverEachEndHasThem) {
  std::mt19937_64 random(new_seed());
  Wire wire(random());
  Mixed sender(wire, 0), receiver(wire, 1);
  constexpr uint32_t count = 60;
  std::vector<std::vector<std::byte>> sent(count), received(count);
  std::vector<uint32_t> order;
  for (uint32_t number = 0; number < count; ++number) {
    // Whole pieces and one byte more or less, too.
    const uint64_t whole = random() % 20 * piece;
    sent[number].resize(number % 3 == 0 ? random() % 6000 : whole + number % 3 - (whole > 0 ? 1 : 0));
    for (std::byte& each : sent[number]) each = static_cast<std::byte>(random());
    received[number].resize(sent[number].size());
    order.push_back(number);
  }
  for (const uint32_t number : order) sender.start(number, sent[number], any_way(random));
  std::ranges::shuffle(order, random);
  for (const uint32_t number : order) receiver.start(number, received[number], any_way(random));
  while (receiver.outcomes.size() < count || sender.outcomes.size() < count || !sender.pieces().drained())
    if (!sender.move() && !receiver.move()) std::this_thread::yield();
  EXPECT_EQ(received, sent);
  EXPECT_EQ(wire.left(), 0U);
  EXPECT_EQ(receiver.pieces().waiting_for(), nullptr);
  EXPECT_FALSE(sender.pieces().copying() || receiver.pieces().copying());
}

// At once, by the first piece that is not as it should be; never by waiting for one that does not come.
TEST(MessagePiecesTest, OfAnotherLengthThanExpectedSaySo) {
  for (const uint64_t bytes : {0UL, 1UL, piece - 1, piece, piece + 1, 3 * piece, 10 * piece + 5})
    for (const uint64_t expected : {0UL, 1UL, piece - 1, piece, piece + 1, 3 * piece, 10 * piece + 5})
      for (const Way from : {Way::host, Way::direct, Way::staged})
        for (const Way to : {Way::host, Way::direct, Way::staged}) {
          Wire wire(1);
          Mixed sender(wire, 0), receiver(wire, 1);
          std::vector<std::byte> sent(bytes), received(expected);
          sender.start(0, sent, from);
          receiver.start(0, received, to);
          while (receiver.outcomes.empty())
            if (!sender.move() && !receiver.move()) std::this_thread::yield();
          const MessagePieces::Outcome& outcome = receiver.outcomes.at(0);
          EXPECT_EQ(outcome.status.ok(), bytes <= expected) << bytes << " for " << expected;
          if (outcome.status.ok()) {
            EXPECT_EQ(outcome.bytes, bytes) << bytes << " for " << expected;
          }
          sender.pieces().stop();
          receiver.pieces().stop();
        }
}

/// Messages of less than a piece from a sender that holds them, to a receiver that expects them all.
class HeldMessages : public testing::Test {
 protected:
  void start(const std::vector<uint64_t>& sizes) {
    for (const uint64_t bytes : sizes) {
      sent_.emplace_back(bytes, static_cast<std::byte>(bytes));
      received_.emplace_back(bytes);
    }
    for (uint32_t number = 0; number < sizes.size(); ++number) {
      sender_.start(number, sent_[number], Way::staged, true);
      receiver_.start(number, received_[number], Way::host);
    }
  }
  void gather() {
    do sender_.move();
    while (sender_.pieces().gathering());
  }
  void finish() {
    while (sender_.outcomes.size() < sent_.size() || receiver_.outcomes.size() < sent_.size())
      if (!sender_.move() && !receiver_.move()) std::this_thread::yield();
    EXPECT_EQ(received_, sent_);
  }
  static Status refuse_all(MessagePieces& pieces) {
    return pieces.hand_over([](const auto&...) { return false; });
  }

  Wire wire_{1};
  Mixed sender_{wire_, 0}, receiver_{wire_, 1};
  std::vector<std::vector<std::byte>> sent_, received_;
};

TEST_F(HeldMessages, StayInTheirSlotsUntilTheyAreHandedOver) {
  start({100, 0, 299});
  gather();
  for (int i = 0; i < 100; ++i) sender_.move(), receiver_.move();
  EXPECT_TRUE(sender_.outcomes.empty() && receiver_.outcomes.empty()) << "nothing has left";
  EXPECT_TRUE(refuse_all(sender_.pieces()).ok());
  finish();
}

TEST_F(HeldMessages, AreOverWhenWhoTookThemSaysSo) {
  start({100, 0, 299});
  gather();
  std::map<uint64_t, transports::Completion*> taken;
  const auto take = [&](const Message& message, const std::byte* data, transports::Completion& completion) {
    EXPECT_TRUE(std::equal(data, data + message.bytes, sent_[message.token].begin()));
    if (message.token == 0) return false;
    taken[message.token] = &completion;
    std::copy_n(data, message.bytes, received_[message.token].begin());
    return true;
  };
  EXPECT_TRUE(sender_.pieces().hand_over(take).ok());
  ASSERT_EQ(taken.size(), 2U);
  while (sender_.outcomes.empty() || receiver_.outcomes.empty()) sender_.move(), receiver_.move();
  EXPECT_EQ(sender_.outcomes.size(), 1U) << "that which was refused";
  EXPECT_TRUE(sender_.pieces().on_network()) << "so it is waited for";
  for (const auto& [token, completion] : taken) completion->finish(transports::Completion::State::done);
  while (sender_.outcomes.size() < 3) sender_.move();
  EXPECT_EQ(sender_.outcomes.at(2).bytes, 299U);
  EXPECT_EQ(received_, sent_);
  receiver_.pieces().stop();
}

TEST_F(HeldMessages, ThatFindASlotOnlyLaterAreSent) {
  const std::vector<uint64_t> sizes(100, 200);  // there are about ten slots
  start(sizes);
  gather();
  size_t offered = 0;
  const auto count = [&](const auto&...) { return ++offered == 0; };
  EXPECT_TRUE(sender_.pieces().hand_over(count).ok());
  EXPECT_GT(offered, 0U);
  EXPECT_LT(offered, sizes.size());
  finish();
}

}  // namespace
}  // namespace epccl::runtime
