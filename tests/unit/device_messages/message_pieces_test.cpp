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
  void start(uint32_t number, std::vector<std::byte>& memory, Way way) {
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

}  // namespace
}  // namespace epccl::runtime
