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

}  // namespace
}  // namespace epccl::transports
