#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <deque>
#include <set>

#include "device/device.hpp"
#include "fabric.hpp"

namespace epccl::transports {
namespace {

template <typename AnyFabric>
void run(AnyFabric& fabric, std::deque<Message>& messages) {
  ASSERT_TRUE(fabric.drive_until([&] {
    return std::all_of(messages.begin(), messages.end(), [](const auto& m) { return m.finished(); });
  }));
  for (const Message& message : messages) message.expect_arrived();
}

template <typename Maker>
class Messages : public OfTransport<Maker> {};
TYPED_TEST_SUITE(Messages, Makers, MakerNames);

TYPED_TEST(Messages, ArriveWholeAtEverySize) {
  auto random = seeded_random();
  Fabric<TypeParam> fabric(2);
  std::vector<size_t> sizes{0, 1, 7, 8, 9191, 9216, 65535, 65536, 65537, 66560, 131072, 1 << 20, 4 << 20};
  for (int i = 0; i < 40; ++i) sizes.push_back(random() % (size_t{1} << (1 + random() % 22)));
  for (size_t i = 0; i < sizes.size(); ++i) {
    SCOPED_TRACE(sizes[i]);
    std::deque<Message> one;
    one.emplace_back(0, 1, i, sizes[i]);
    ASSERT_TRUE(one[0].recv(fabric).ok());
    ASSERT_TRUE(one[0].send(fabric).ok());
    run(fabric, one);
  }
}

// Who has thousands under way does not look at each of them.
TYPED_TEST(Messages, AreToldOnceEachWhenTheyHaveFinished) {
  Fabric<TypeParam> fabric(2);
  FinishedMessages finished;
  std::deque<Message> messages;
  for (const size_t bytes : {size_t{0}, size_t{64}, size_t{9000}, size_t{100000}, size_t{3} << 20})
    for (const bool early : {true, false}) {
      Message& message = messages.emplace_back(0, 1, messages.size(), bytes);
      if (early) {
        ASSERT_TRUE(message.send(fabric).ok());
        fabric.settle();
      }
      ASSERT_TRUE(message.recv(fabric).ok());
      if (!early) {
        ASSERT_TRUE(message.send(fabric).ok());
      }
      message.sending.tell(finished);
      message.receiving.tell(finished);
    }
  run(fabric, messages);
  std::multiset<const Completion*> expected, told;
  for (const Message& message : messages) expected.insert({&message.sending, &message.receiving});
  while (const Completion* const one = finished.take()) told.insert(one);
  EXPECT_EQ(told, expected);
}

TYPED_TEST(Messages, OfNoBytesNeedNoBuffer) {
  Fabric<TypeParam> fabric(2);
  Completion sending, receiving;
  ASSERT_TRUE(fabric[0].send(1, 5, nullptr, 0, sending).ok());
  ASSERT_TRUE(fabric[1].recv(0, 5, nullptr, 0, receiving).ok());
  ASSERT_TRUE(fabric.finish(receiving));
  EXPECT_EQ(receiving.state, Completion::State::done);
  EXPECT_EQ(receiving.bytes, 0u);
}

TYPED_TEST(Messages, MayBeSentBeforeTheReceiveIsPosted) {
  Fabric<TypeParam> fabric(2);
  for (const size_t bytes : {size_t{0}, size_t{64}, size_t{8192}, size_t{100000}, size_t{3} << 20}) {
    SCOPED_TRACE(bytes);
    Message message(0, 1, bytes, bytes);
    ASSERT_TRUE(message.send(fabric).ok());
    // Eager at every size: no handshake with the receiver, who has not even asked yet.
    if (TypeParam::sends_unasked) {
      ASSERT_TRUE(fabric.finish(message.sending));
    }
    fabric.settle();
    ASSERT_TRUE(message.recv(fabric).ok());
    ASSERT_TRUE(fabric.finish(message.receiving));
    ASSERT_TRUE(fabric.finish(message.sending));
    message.expect_arrived();
  }
}

TYPED_TEST(Messages, CompleteWithTheirLengthWhenShorterThanTheReceive) {
  Fabric<TypeParam> fabric(2);
  const auto data = pattern(0, 1, 1, 1000);
  std::vector<uint8_t> room(5000, 0xee);
  Completion sending, receiving;
  ASSERT_TRUE(fabric[1].recv(0, 1, room.data(), room.size(), receiving).ok());
  ASSERT_TRUE(fabric[0].send(1, 1, data.data(), data.size(), sending).ok());
  ASSERT_TRUE(fabric.finish(receiving));
  ASSERT_EQ(receiving.state, Completion::State::done);
  EXPECT_EQ(receiving.bytes, 1000u);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), room.begin()));
  EXPECT_EQ(room[1000], 0xee);
}

TYPED_TEST(Messages, AreMatchedByKeyWhateverTheOrder) {
  auto random = seeded_random();
  Fabric<TypeParam> fabric(2);
  std::deque<Message> messages;
  for (MessageKey key = 0; key < 300; ++key) {
    const MessageKey wide = key % 3 == 0 ? of_no_call | key << 37 | key : key;  // all 47 bits count
    const size_t bytes = random() % (size_t{1} << (random() % 18));
    messages.emplace_back(static_cast<int>(key % 2), static_cast<int>(1 - key % 2), wide, bytes);
  }
  std::vector<std::pair<Message*, bool>> calls;
  for (Message& message : messages) {
    calls.emplace_back(&message, true);
    calls.emplace_back(&message, false);
  }
  std::shuffle(calls.begin(), calls.end(), random);
  for (auto [message, is_send] : calls) {
    ASSERT_TRUE((is_send ? message->send(fabric) : message->recv(fabric)).ok());
    if (random() % 4 == 0) fabric.progress();
  }
  run(fabric, messages);
}

TYPED_TEST(Messages, ManyLargeOnesCrossInBothDirections) {
  Fabric<TypeParam> fabric(2);
  std::deque<Message> messages;
  for (MessageKey key = 0; key < 48; ++key) {
    for (int source : {0, 1}) messages.emplace_back(source, 1 - source, key, (size_t{1} << 20) + 13 * key);
  }
  for (Message& message : messages) ASSERT_TRUE(message.recv(fabric).ok());
  for (Message& message : messages) ASSERT_TRUE(message.send(fabric).ok());
  run(fabric, messages);
}

TYPED_TEST(Messages, OfDifferentPeersWithOneKeyDoNotMix) {
  auto random = seeded_random();
  Fabric<TypeParam> fabric(5);
  std::deque<Message> messages;
  for (MessageKey key = 0; key < 6; ++key) {
    for (int source = 0; source < fabric.ranks(); ++source) {
      for (int destination = 0; destination < fabric.ranks(); ++destination) {
        if (source != destination || TypeParam::reaches_itself)
          messages.emplace_back(source, destination, key, random() % 70000);
      }
    }
  }
  for (Message& message : messages) {
    ASSERT_TRUE(message.send(fabric).ok());
    if (random() % 2 == 0) fabric.progress();
  }
  for (Message& message : messages) ASSERT_TRUE(message.recv(fabric).ok());
  run(fabric, messages);
}

TYPED_TEST(Messages, TooLongForTheReceiveFailItWithBothLengths) {
  for (const size_t bytes : {size_t{200}, size_t{300000}}) {
    for (const bool posted_first : {true, false}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes, receive posted first: " << posted_first);
      Fabric<TypeParam> fabric(2);
      const auto data = pattern(0, 1, 1, bytes);
      std::vector<uint8_t> room(101, 0xee);
      Completion sending, receiving;
      if (posted_first) {
        ASSERT_TRUE(fabric[1].recv(0, 1, room.data(), 100, receiving).ok());
      }
      ASSERT_TRUE(fabric[0].send(1, 1, data.data(), data.size(), sending).ok());
      fabric.settle();
      if (!posted_first) {
        (void)fabric[1].recv(0, 1, room.data(), 100, receiving);
      }
      ASSERT_TRUE(fabric.finish(receiving));
      ASSERT_EQ(receiving.state, Completion::State::failed);
      EXPECT_EQ(receiving.status.code(), Code::invalid_usage);
      EXPECT_NE(receiving.status.message().find("rank 0 sent " + std::to_string(bytes)), std::string::npos)
          << receiving.status.message();
      EXPECT_NE(receiving.status.message().find("at most 100"), std::string::npos)
          << receiving.status.message();
      EXPECT_EQ(room[100], 0xee);

      // Only that message failed.
      Message next(0, 1, 2, 5000);
      ASSERT_TRUE(next.recv(fabric).ok());
      ASSERT_TRUE(next.send(fabric).ok());
      ASSERT_TRUE(fabric.drive_until([&] { return next.finished(); }));
      next.expect_arrived();
    }
  }
}

TYPED_TEST(Messages, OfMemoryThatNoTransportMovesAreRefusedBeforehandWithTheReason) {
  Fabric<TypeParam> fabric(2);
  std::array<std::byte, 100> data{};
  const auto memory = fabric[0].device_memory(device::host_device(), data.data(), data.size());
  ASSERT_FALSE(memory.ok());
  const std::string& said = memory.status().message();
  EXPECT_TRUE(said.find("host memory only") != std::string::npos ||
              said.find("has no CUDA here") != std::string::npos ||
              said.find("memory of the host device") != std::string::npos)
      << said;
}

TYPED_TEST(Messages, AreCountedWhereTheyPass) {
  Fabric<TypeParam> fabric(3);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(fabric[rank].counters().connections, 0u);
  std::deque<Message> messages;
  for (MessageKey key = 0; key < 10; ++key) messages.emplace_back(0, 1, key, 1000);
  messages.emplace_back(0, 2, 0, 7);
  for (Message& message : messages) {
    ASSERT_TRUE(message.recv(fabric).ok());
    ASSERT_TRUE(message.send(fabric).ok());
  }
  run(fabric, messages);
  EXPECT_EQ(fabric[0].counters().messages_sent, 11u);
  EXPECT_EQ(fabric[0].counters().bytes_sent, 10007u);
  EXPECT_EQ(fabric[0].counters().messages_received, 0u);
  EXPECT_EQ(fabric[1].counters().messages_received, 10u);
  EXPECT_EQ(fabric[1].counters().bytes_received, 10000u);
  EXPECT_EQ(fabric[2].counters().bytes_received, 7u);
  // Connections are made by senders, once per peer used, and only then is an address looked up.
  EXPECT_EQ(fabric[0].counters().connections, 2u);
  EXPECT_EQ(fabric.lookups(0), 0);
  EXPECT_EQ(fabric.lookups(1), 1);
  EXPECT_EQ(fabric.lookups(2), 1);
}

TYPED_TEST(Messages, CanBeWaitedForAsleep) {
  Fabric<TypeParam> fabric(2);
  Message first(0, 1, 0, 100);  // connects
  ASSERT_TRUE(first.recv(fabric).ok());
  ASSERT_TRUE(first.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(first.receiving));
  fabric.settle();

  Message second(0, 1, 1, 1 << 20);
  ASSERT_TRUE(second.recv(fabric).ok());
  auto& receiver = fabric[1];
  pollfd event{receiver.event_fd(), POLLIN, 0};
  ASSERT_GE(event.fd, 0);
  while (!receiver.arm(false)) receiver.progress();
  EXPECT_EQ(::poll(&event, 1, 50), 0) << "nothing was sent, yet the descriptor is readable";

  ASSERT_TRUE(second.send(fabric).ok());
  int wakeups = 0;
  while (!second.receiving.finished()) {
    fabric[0].progress();  // the sender may have filled its socket
    if (receiver.progress() || !receiver.arm(false)) continue;
    // What the sender has not given away yet needs it, too.
    const bool all_sent = second.sending.finished();
    const int woken = ::poll(&event, 1, all_sent ? 10000 : 1);
    ASSERT_TRUE(woken == 1 || !all_sent);
    ASSERT_LT(++wakeups, 1000) << "waiting is a busy loop";
  }
  ASSERT_TRUE(fabric.finish(second.sending));
  second.expect_arrived();
}

// What was set for much of a large message must hold up neither its end nor a small one behind it.
TYPED_TEST(Messages, ComeAtOnceToWhoNoLongerWaitsRarely) {
  Fabric<TypeParam> fabric(2);
  Message hello(0, 1, 0, 1), large(0, 1, 1, 32 << 20), small(0, 1, 2, 100);
  ASSERT_TRUE(hello.recv(fabric).ok());
  ASSERT_TRUE(hello.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(hello.receiving));
  ASSERT_TRUE(large.recv(fabric).ok());
  ASSERT_TRUE(large.send(fabric).ok());
  while (fabric[1].progress()) {
  }
  EXPECT_FALSE(large.receiving.finished());
  fabric[1].arm(true);
  ASSERT_TRUE(fabric.finish(large.receiving)) << "progress() alone does not get its end";
  ASSERT_TRUE(fabric.finish(large.sending));
  large.expect_arrived();
  ASSERT_TRUE(small.recv(fabric).ok());
  ASSERT_TRUE(small.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(small.receiving)) << "progress() alone does not get it";
  ASSERT_TRUE(fabric.finish(small.sending));
  small.expect_arrived();
}

TYPED_TEST(Messages, ThatAreDoneArriveThoughTheSenderIsGone) {
  Fabric<TypeParam> fabric(2);
  Message back(1, 0, 0, 10);  // both have heard of each other
  ASSERT_TRUE(back.recv(fabric).ok());
  ASSERT_TRUE(back.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(back.receiving));
  std::deque<Message> messages;
  for (MessageKey key = 0; key < 5; ++key) {
    messages.emplace_back(0, 1, key, 1000 + key);
    ASSERT_TRUE(messages.back().send(fabric).ok());
    ASSERT_TRUE(fabric.finish(messages.back().sending));
  }
  fabric.destroy(0);
  receive_late(fabric, messages);
}

}  // namespace
}  // namespace epccl::transports
