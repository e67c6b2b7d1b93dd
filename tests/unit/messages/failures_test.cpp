#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "fabric.hpp"
#include "peer_process.hpp"

namespace epccl::transports {
namespace {

bool mentions(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

template <typename Maker>
class Failures : public OfTransport<Maker> {};
TYPED_TEST_SUITE(Failures, Makers, MakerNames);

TYPED_TEST(Failures, OfArgumentsAreReported) {
  char byte = 0;
  Completion completion;
  Fabric<TypeParam> fabric(2);
  EXPECT_EQ(fabric[0].send(2, 0, &byte, 1, completion).code(), Code::invalid_argument);
  EXPECT_EQ(fabric[0].recv(-1, 0, &byte, 1, completion).code(), Code::invalid_argument);
  EXPECT_EQ(fabric[0].send(1, MessageKey{1} << message_key_bits, &byte, 1, completion).code(),
            Code::invalid_argument);
  ASSERT_TRUE(fabric[0].recv(1, 0, &byte, 1, completion).ok());
  EXPECT_EQ(fabric[0].recv(1, 1, &byte, 1, completion).code(), Code::invalid_usage)
      << "the completion is in use";

  const auto no_lookup = [](int) -> Result<std::vector<std::byte>> {
    return error(Code::internal_error, "unused");
  };
  EXPECT_EQ(TypeParam::create(0, 0, no_lookup).status().code(), Code::invalid_argument);
  EXPECT_EQ(TypeParam::create(4, 4, no_lookup).status().code(), Code::invalid_argument);
}

#ifdef EPCCL_WITH_UCX
TEST(UcxArguments, NameAtMostAsManyRanksAsATagCan) {
  const auto no_lookup = [](int) -> Result<std::vector<std::byte>> {
    return error(Code::internal_error, "unused");
  };
  EXPECT_EQ(UcxTransport::create(0, 131073, no_lookup).status().code(), Code::invalid_argument);
  EXPECT_TRUE(UcxTransport::create(131071, 131072, no_lookup).ok());
}
#endif

TYPED_TEST(Failures, OfTheAddressLookupAreReported) {
  const auto lookup = [](int peer) -> Result<std::vector<std::byte>> {
    return error(Code::remote_error, "rank {} published nothing", peer);
  };
  auto transport = TypeParam::create(0, 2, lookup);
  ASSERT_TRUE(transport.ok());
  Completion completion;
  char byte = 0;
  const Status status = (*transport)->send(1, 0, &byte, 1, completion);
  EXPECT_EQ(status.code(), Code::remote_error);
  EXPECT_TRUE(mentions(status, "rank 1 published nothing")) << status.message();
  EXPECT_EQ(completion.state, Completion::State::failed);
}

TYPED_TEST(Failures, CancelEndsWhatIsPending) {
  Fabric<TypeParam> fabric(3);
  std::vector<char> buffer(1 << 20);
  Completion never_sent, connected;
  Message hello(0, 1, 0, 10);
  ASSERT_TRUE(hello.send(fabric).ok());
  ASSERT_TRUE(hello.recv(fabric).ok());
  ASSERT_TRUE(fabric.finish(hello.receiving));
  ASSERT_TRUE(fabric[0].recv(1, 7, buffer.data(), 64, connected).ok());
  ASSERT_TRUE(fabric[0].recv(2, 7, buffer.data(), 64, never_sent).ok());
  std::deque<Completion> sends;
  do {  // until the socket is full: rank 1 does not progress
    sends.emplace_back();
    ASSERT_TRUE(fabric[0].send(1, 100 + sends.size(), buffer.data(), buffer.size(), sends.back()).ok());
  } while (sends.back().finished());
  FinishedMessages told;
  for (Completion* completion : {&never_sent, &connected, &sends.back()}) completion->tell(told);

  fabric[0].cancel_all();
  for (int failed = 0; failed < 3; ++failed) EXPECT_NE(told.take(), nullptr);
  EXPECT_EQ(told.take(), nullptr);
  for (const Completion* completion : {&never_sent, &connected, &sends.back()}) {
    ASSERT_EQ(completion->state, Completion::State::failed);
    EXPECT_EQ(completion->status.code(), Code::remote_error);
  }
  EXPECT_TRUE(mentions(never_sent.status, "receiving 64 bytes from rank 2")) << never_sent.status.message();
  EXPECT_TRUE(mentions(sends.back().status, "sending 1048576 bytes to rank 1"))
      << sends.back().status.message();

  Completion later;
  EXPECT_EQ(fabric[0].send(2, 1, buffer.data(), 1, later).code(), Code::remote_error);
  EXPECT_EQ(later.state, Completion::State::failed);
  EXPECT_EQ(fabric[0].recv(2, 1, buffer.data(), 1, later).code(), Code::remote_error);
  fabric[0].cancel_all();
  fabric[0].progress();
}

TYPED_TEST(Failures, CancelledReceivesLeaveTheirBuffersAlone) {
  Fabric<TypeParam> fabric(2);
  Message message(1, 0, 7, 64 << 20);
  ASSERT_TRUE(message.recv(fabric).ok());
  ASSERT_TRUE(message.send(fabric).ok());
  ASSERT_TRUE(fabric.drive_until([&] { return message.received.front() != 0xee; }));
  if (message.receiving.finished()) GTEST_SKIP() << "64 MiB came at once";

  fabric[0].cancel_all();
  ASSERT_EQ(message.receiving.state, Completion::State::failed);
  std::ranges::fill(message.received, 0x5a);
  fabric.settle();
  fabric.destroy(0);
  fabric.settle();
  EXPECT_EQ(std::ranges::count(message.received, 0x5a), std::ssize(message.received));
}

TYPED_TEST(Failures, DestructionEndsWhatIsPending) {
  std::vector<char> buffer(1 << 20);
  std::deque<Completion> completions;
  Fabric<TypeParam> fabric(2);
  for (MessageKey key = 0; key < 64; ++key) {
    completions.emplace_back();
    ASSERT_TRUE(fabric[0].send(1, key, buffer.data(), buffer.size(), completions.back()).ok());
    completions.emplace_back();
    ASSERT_TRUE(fabric[0].recv(1, key, buffer.data(), buffer.size(), completions.back()).ok());
  }
  fabric.destroy(0);  // rank 1 never progresses
  for (const Completion& completion : completions) EXPECT_TRUE(completion.finished());
  EXPECT_EQ(completions.back().state, Completion::State::failed);
}

template <typename TypeParam>
void kill_a_peer_under_load() {
  PeerProcess peer(TypeParam::name, 1, 2);
  auto created = TypeParam::create(0, 2, [&](int) { return Result(peer.address()); });
  ASSERT_TRUE(created.ok());
  auto& transport = **created;
  peer.connect(transport.address());
  const auto drive_until = [&](auto done) {
    const double deadline = now_seconds() + patience_seconds;
    while (!done() && now_seconds() < deadline) transport.progress();
    return done();
  };

  // The peer answers this one message, sends another that nobody has asked for, and does nothing any more.
  std::vector<char> buffer(1 << 20, 'x');
  Completion hello, answer;
  ASSERT_TRUE(transport.send(1, PeerProcess::hello_key, buffer.data(), 16, hello).ok());
  ASSERT_TRUE(transport.recv(1, PeerProcess::answer_key, buffer.data(), 16, answer).ok());
  ASSERT_TRUE(drive_until([&] { return hello.finished() && answer.finished(); }));
  ASSERT_EQ(answer.state, Completion::State::done);

  std::deque<Completion> sends;
  for (MessageKey key = 0; key < 64; ++key) {
    sends.emplace_back();
    ASSERT_TRUE(transport.send(1, 100 + key, buffer.data(), buffer.size(), sends.back()).ok());
  }
  std::vector<char> inbox(64);
  Completion receive;
  ASSERT_TRUE(transport.recv(1, 5000, inbox.data(), inbox.size(), receive).ok());
  ASSERT_FALSE(sends.back().finished()) << "64 MiB went into the socket of a peer that reads nothing";

  peer.kill();
  ASSERT_TRUE(drive_until([&] { return sends.back().finished() && receive.finished(); }));
  size_t failed = 0;
  for (const Completion& send : sends) {
    ASSERT_TRUE(send.finished());
    if (send.state == Completion::State::done) continue;
    ++failed;
    EXPECT_EQ(send.status.code(), Code::remote_error);
    EXPECT_TRUE(mentions(send.status, "sending 1048576 bytes to rank 1: ")) << send.status.message();
  }
  EXPECT_GT(failed, 0u);
  ASSERT_EQ(receive.state, Completion::State::failed);
  EXPECT_TRUE(mentions(receive.status, "receiving 64 bytes from rank 1")) << receive.status.message();

  Completion later;
  EXPECT_EQ(transport.send(1, 9000, buffer.data(), 1, later).code(), Code::remote_error);
  EXPECT_EQ(later.state, Completion::State::failed);
  EXPECT_EQ(transport.recv(1, 9001, buffer.data(), 1, later).code(), Code::remote_error);
  // What had arrived before it died can still be had.
  Completion farewell;
  EXPECT_TRUE(transport.recv(1, PeerProcess::farewell_key, inbox.data(), inbox.size(), farewell).ok());
  ASSERT_EQ(farewell.state, Completion::State::done);
  EXPECT_EQ(farewell.bytes, 8u);
}

TYPED_TEST(Failures, OfAKilledPeerNameItsRank) {
  // Where in a message the connection breaks is a matter of luck, and matters to UCX.
  for (int attempt = 0; attempt < 5 && !this->HasFatalFailure(); ++attempt)
    kill_a_peer_under_load<TypeParam>();
}

TYPED_TEST(Failures, OfAPeerThatDiesWithinAMessageEndItsReceive) {
  // The peer sends 64 MiB, of which only the beginning is taken from the socket while it lives.
  PeerProcess peer(TypeParam::name, 1, 2, "half_message");
  std::vector<char> buffer(64 << 20);
  Completion hello, half;
  auto created = TypeParam::create(0, 2, [&](int) { return Result(peer.address()); });
  ASSERT_TRUE(created.ok());
  auto& transport = **created;
  peer.connect(transport.address());
  ASSERT_TRUE(transport.send(1, PeerProcess::hello_key, buffer.data(), 16, hello).ok());
  ASSERT_TRUE(transport.recv(1, PeerProcess::answer_key, buffer.data(), buffer.size(), half).ok());
  const double deadline = now_seconds() + patience_seconds;
  while (buffer.front() == 0 && now_seconds() < deadline) transport.progress();
  ASSERT_EQ(half.state, Completion::State::pending);
  peer.kill();
  while (!half.finished() && now_seconds() < deadline) transport.progress();
  ASSERT_EQ(half.state, Completion::State::failed);
  EXPECT_EQ(half.status.code(), Code::remote_error);
  EXPECT_TRUE(mentions(half.status, "from rank 1")) << half.status.message();
}

TYPED_TEST(Failures, ToConnectToADeadPeerAreReported) {
  std::vector<std::byte> address;
  {
    PeerProcess peer(TypeParam::name, 1, 2);
    address = peer.address();
    peer.kill();
  }
  auto created = TypeParam::create(0, 2, [&](int) { return Result(address); });
  ASSERT_TRUE(created.ok());
  char byte = 0;
  Completion completion;
  (void)(*created)->send(1, 1, &byte, 1, completion);
  const double deadline = now_seconds() + patience_seconds;
  while (!completion.finished() && now_seconds() < deadline) (*created)->progress();
  // UCX may have buffered the message; then the next one fails.
  while (completion.state != Completion::State::failed && now_seconds() < deadline) {
    (*created)->progress();
    if (completion.finished()) (void)(*created)->send(1, 1, &byte, 1, completion);
  }
  ASSERT_EQ(completion.state, Completion::State::failed);
  EXPECT_TRUE(mentions(completion.status, "rank 1")) << completion.status.message();
}

}  // namespace
}  // namespace epccl::transports
