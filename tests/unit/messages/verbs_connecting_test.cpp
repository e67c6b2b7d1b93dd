// A peer that goes away, or says nonsense, at each step of the handshake (transports/verbs/wire.hpp): what waits for it fails, and
// says why.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <functional>

#include "soft_roce.hpp"

namespace epccl::transports {
namespace {

using verbs::Answer;
using verbs::Hello;
using verbs::Notice;
using verbs::Verdict;

/// Rank 0 of two, on node 0; rank 1 is this test, on bare sockets.
class VerbsConnecting : public OnSoftRoce {
 protected:
  void SetUp() override {
    OnSoftRoce::SetUp();
    if (IsSkipped()) return;
    peer_.endpoint = *net::local_address("lo");
    auto listener = net::listen_at(peer_.endpoint);
    ASSERT_TRUE(listener.ok());
    listener_ = std::move(listener).value();
    auto made = VerbsTransport::create(
        0, 2, *net::local_address("lo"), [this](int) { return Result(peer_.encode()); }, Verbs::options(0));
    ASSERT_TRUE(made.ok()) << made.status().message();
    rank_ = std::move(made).value();
    EXPECT_TRUE(rank_->recv(1, 1, &got_, 1, receiving_).ok());
  }
  void TearDown() override {
    rank_.reset();
    OnSoftRoce::TearDown();
  }

  bool drive_until(const std::function<bool()>& done) {
    const double deadline = now_seconds() + patience_seconds;
    while (!done() && now_seconds() < deadline) rank_->progress();
    return done();
  }
  void drive_a_while() {
    for (int i = 0; i < 2000; ++i) rank_->progress();
  }

  /// The rank dials: its connection.
  UniqueFd dialled() {
    (void)rank_->send(1, 2, &byte_, 1, sending_);
    EXPECT_TRUE(net::wait_for(listener_.get(), POLLIN, now_seconds() + patience_seconds));
    return UniqueFd(::accept(listener_.get(), nullptr, nullptr));
  }
  /// A connection to the rank.
  UniqueFd dial() {
    const auto address = verbs::Address::decode(rank_->address());
    auto socket = net::start_connect(address->endpoint);
    EXPECT_TRUE(socket.ok());
    EXPECT_TRUE(net::wait_for(socket->get(), POLLOUT, now_seconds() + patience_seconds));
    return std::move(socket).value();
  }
  template <typename T>
  T read(const UniqueFd& socket) {
    T what;
    size_t have = 0;
    EXPECT_TRUE(drive_until([&] {
      const ssize_t got =
          ::recv(socket.get(), reinterpret_cast<char*>(&what) + have, sizeof what - have, MSG_DONTWAIT);
      if (got > 0) have += static_cast<size_t>(got);
      return have == sizeof what;
    }));
    return what;
  }
  template <typename T>
  static void write(const UniqueFd& socket, const T& what, size_t bytes = sizeof(T)) {
    EXPECT_EQ(::send(socket.get(), &what, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  /// Ends that can be connected to, of no queue pair.
  static verbs::Ends ends() {
    verbs::Ends ends;
    const auto ports = verbs::open_ports(**verbs::Library::get(), {.devices = "n1r"});
    for (const verbs::OpenPort& open : *ports) {
      verbs::End& end = ends.rails[static_cast<size_t>(ends.count++)];
      end.queue_pair = 1;
      std::memcpy(end.gid.data(), open.port.gid.raw, end.gid.size());
      end.mtu = static_cast<uint8_t>(open.port.mtu);
      end.ethernet = 1;
    }
    return ends;
  }
  Hello hello() {
    Hello hello;
    hello.cookie = verbs::Address::decode(rank_->address())->cookie;
    hello.from = 1;
    hello.to = 0;
    hello.ends = ends();
    return hello;
  }

  void expect_failed(const Completion& completion, const char* why) {
    ASSERT_TRUE(drive_until([&] { return completion.finished(); }));
    EXPECT_EQ(completion.state, Completion::State::failed);
    EXPECT_EQ(completion.status.code(), Code::remote_error);
    for (const char* word : {"rank 1", why})
      EXPECT_NE(completion.status.message().find(word), std::string::npos)
          << word << " is not in: " << completion.status.message();
  }
  void expect_all_failed(const char* why) {
    expect_failed(sending_, why);
    expect_failed(receiving_, why);
  }

  verbs::Address peer_;
  UniqueFd listener_;
  std::unique_ptr<VerbsTransport> rank_;
  char byte_ = 'x', got_ = 0;
  Completion sending_, receiving_;
};

// ---- the rank dials -----------------------------------------------------------------------------------------------------

TEST_F(VerbsConnecting, APeerThatClosesAtOnce) {
  dialled().reset();
  expect_all_failed("it closed the connection before it had accepted it");
}

TEST_F(VerbsConnecting, APeerThatClosesAfterTheGreeting) {
  UniqueFd socket = dialled();
  EXPECT_EQ(read<Hello>(socket).ends.count, 2);
  socket.reset();
  expect_all_failed("it closed the connection before it had accepted it");
}

TEST_F(VerbsConnecting, APeerThatClosesInTheMiddleOfItsAnswer) {
  UniqueFd socket = dialled();
  (void)read<Hello>(socket);
  write(socket, Answer{}, sizeof(Answer) / 2);
  drive_a_while();
  EXPECT_FALSE(sending_.finished());
  socket.reset();
  expect_all_failed("it closed the connection before it had accepted it");
}

TEST_F(VerbsConnecting, APeerThatAnswersNonsense) {
  UniqueFd socket = dialled();
  (void)read<Hello>(socket);
  Answer answer;
  answer.verdict = Verdict::welcome;
  answer.ends.count = 1;
  answer.ends.rails[0].mtu = 99;
  answer.ends.rails[0].ethernet = 1;
  write(socket, answer);
  expect_all_failed("MTU");
}

TEST_F(VerbsConnecting, APeerThatRefuses) {
  UniqueFd socket = dialled();
  (void)read<Hello>(socket);
  Answer answer;
  std::strcpy(answer.reason.data(), "no queue pair is left");
  write(socket, answer);
  expect_all_failed("it refused the connection: no queue pair is left");
}

TEST_F(VerbsConnecting, APeerThatDeclinesForItsOwnConnectionAndEnds) {
  UniqueFd socket = dialled();
  (void)read<Hello>(socket);
  Answer answer;
  answer.verdict = Verdict::declined;
  write(socket, answer);
  drive_a_while();
  EXPECT_FALSE(sending_.finished()) << "its own connection may still come";
  socket.reset();
  expect_all_failed("its process ended before it had made the connection");
}

TEST_F(VerbsConnecting, APeerThatEndsOnceItHasWelcomedTheRank) {
  UniqueFd socket = dialled();
  (void)read<Hello>(socket);
  Answer answer;
  answer.verdict = Verdict::welcome;
  answer.ends = ends();
  write(socket, answer);
  EXPECT_EQ(read<Notice>(socket).kind, Notice::Kind::ready);
  socket.reset();
  expect_failed(receiving_, "its process has ended");
}

// ---- the rank is dialled ------------------------------------------------------------------------------------------------

TEST_F(VerbsConnecting, APeerThatEndsBeforeItHasGreetedChangesNothing) {
  dial().reset();
  UniqueFd socket = dial();
  write(socket, hello(), sizeof(Hello) / 2);
  drive_a_while();
  socket.reset();
  drive_a_while();
  EXPECT_FALSE(receiving_.finished());
  const UniqueFd next = dial();
  write(next, hello());
  EXPECT_EQ(read<Answer>(next).verdict, Verdict::welcome);
}

TEST_F(VerbsConnecting, APeerThatGreetsAndEnds) {
  UniqueFd socket = dial();
  write(socket, hello());
  EXPECT_EQ(read<Answer>(socket).verdict, Verdict::welcome);
  EXPECT_FALSE(receiving_.finished());
  socket.reset();
  expect_failed(receiving_, "it closed the connection before it was ready");
}

TEST_F(VerbsConnecting, APeerThatIsReadyAndEnds) {
  UniqueFd socket = dial();
  write(socket, hello());
  (void)read<Answer>(socket);
  write(socket, Notice{});
  drive_a_while();
  EXPECT_FALSE(receiving_.finished());
  socket.reset();
  expect_failed(receiving_, "its process has ended");
}

TEST_F(VerbsConnecting, APeerThatCameWhenNoDescriptorWasLeftIsLetInWhenThereIsOne) {
  const UniqueFd socket = dial();
  write(socket, hello());
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit none_left = limit;
  none_left.rlim_cur = static_cast<rlim_t>(UniqueFd(::dup(socket.get())).get());
  none_left.rlim_max = none_left.rlim_cur;  // or it would be raised
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  drive_a_while();
  char byte = 0;
  EXPECT_LT(::recv(socket.get(), &byte, 1, MSG_DONTWAIT), 0) << "there was one: the test shows nothing";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(read<Answer>(socket).verdict, Verdict::welcome);
}

TEST_F(VerbsConnecting, APeerWithoutTheRightCookieIsSentAwayAndChangesNothing) {
  Hello wrong = hello();
  wrong.cookie[0] ^= 1;
  const UniqueFd socket = dial();
  write(socket, wrong);
  ASSERT_TRUE(drive_until([&] {
    char byte = 0;
    return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  })) << "it was let in";
  EXPECT_FALSE(receiving_.finished());
}

}  // namespace
}  // namespace epccl::transports
