#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "fabric.hpp"

namespace epccl::transports {
namespace {

struct PatientUcx : Ucx {
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    return UcxTransport::create(rank, ranks, std::move(lookup),
                                {.close_timeout = patience_seconds, .expected_peers = 0});
  }
};

TEST(UcxMessages, ThatWereSentArriveThoughTheSenderIsGone) {
  std::deque<Message> messages;
  Fabric<PatientUcx> fabric(2);
  Message back(1, 0, 0, 10);  // the receiver has an endpoint, so it will learn that the sender left
  ASSERT_TRUE(back.recv(fabric).ok());
  ASSERT_TRUE(back.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(back.receiving));
  // Until the socket is full and UCX itself holds data: rank 1 does not progress meanwhile.
  do {
    messages.emplace_back(0, 1, messages.size(), 30000);
    ASSERT_TRUE(messages.back().send(fabric).ok());
    fabric[0].progress();
  } while (messages.back().sending.finished());

  std::atomic<bool> gone = false;
  std::thread leaving([&gone, sender = fabric.take(0)]() mutable {
    sender.reset();
    gone = true;
  });
  EXPECT_TRUE(fabric.drive_until([&] { return gone.load(); })) << "closing does not end";
  leaving.join();
  receive_late(fabric, messages);
}

// Its buffer is the caller's again: not even a message that is like the one it waited for comes into it.
TEST(UcxReceives, ThatFailedLeaveTheirBuffersAlone) {
  Fabric<Ucx> fabric(2);
  for (const int source : {0, 1}) {
    Message hello(source, 1 - source, 0, 10);
    ASSERT_TRUE(hello.recv(fabric).ok());
    ASSERT_TRUE(hello.send(fabric).ok());
    ASSERT_TRUE(fabric.finish(hello.receiving));
  }
  Message waited_for(1, 0, 7, 100);
  ASSERT_TRUE(waited_for.recv(fabric).ok());
  fabric.destroy(1);
  ASSERT_TRUE(fabric.finish(waited_for.receiving));
  ASSERT_EQ(waited_for.receiving.state, Completion::State::failed);

  const auto lookup = [&](int) -> Result<std::vector<std::byte>> { return fabric[0].address(); };
  auto another = PatientUcx::create(1, 2, lookup);
  ASSERT_TRUE(another.ok()) << another.status().message();
  ASSERT_TRUE(
      (*another)
          ->send(0, waited_for.key, waited_for.sent.data(), waited_for.sent.size(), waited_for.sending)
          .ok());
  std::atomic<bool> arrived = false;
  std::thread leaving([&arrived, sender = std::move(another).value()]() mutable {
    sender.reset();
    arrived = true;
  });
  EXPECT_TRUE(fabric.drive_until([&] { return arrived.load(); }));
  leaving.join();
  EXPECT_EQ(std::ranges::count(waited_for.received, 0xee), std::ssize(waited_for.received));
}

}  // namespace
}  // namespace epccl::transports
