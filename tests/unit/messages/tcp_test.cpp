// What only the tcp transport does: whose connection stays, who is let in, and what a sender that is not read from meets.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <deque>

#include "fabric.hpp"

namespace epccl::transports {
namespace {

TEST(TcpConnections, AreSharedByBothDirections) {
  Fabric<Tcp> fabric(2);
  Message there(0, 1, 1, 100), back(1, 0, 1, 100);
  for (Message* message : {&there, &back}) {
    ASSERT_TRUE(message->recv(fabric).ok());
    ASSERT_TRUE(message->send(fabric).ok());
    ASSERT_TRUE(fabric.finish(message->receiving));
  }
  EXPECT_EQ(fabric[0].counters().connections, 1u);
  EXPECT_EQ(fabric[1].counters().connections, 1u);
  EXPECT_EQ(fabric.lookups(0), 0) << "rank 1 used the connection that was there";
}

TEST(TcpConnections, ThatCrossBecomeOne) {
  auto random = seeded_random();
  for (int attempt = 0; attempt < 50; ++attempt) {
    Fabric<Tcp> fabric(4);
    std::deque<Message> messages;
    for (int source = 0; source < 4; ++source)
      for (int destination = 0; destination < 4; ++destination)
        if (source != destination)
          for (MessageKey key = 0; key < 3; ++key)
            messages.emplace_back(source, destination, key, random() % 50000);
    std::shuffle(messages.begin(), messages.end(), random);
    for (Message& message : messages) {
      ASSERT_TRUE(message.send(fabric).ok());
      if (random() % 3 == 0) fabric[static_cast<int>(random() % 4)].progress();
    }
    for (Message& message : messages) ASSERT_TRUE(message.recv(fabric).ok());
    ASSERT_TRUE(fabric.drive_until([&] { return std::ranges::all_of(messages, &Message::finished); }));
    for (const Message& message : messages) message.expect_arrived();
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(fabric[rank].counters().connections, 3u);
  }
}

// The lower rank may use its connection at once, and hears only later that the higher one has dialled too.
TEST(TcpConnections, OfTheLowerRankStayWhenTheOtherComesLate) {
  net::Endpoint here = *net::local_address("lo");
  const UniqueFd listener = std::move(net::listen_at(here)).value();
  tcp::Address address_of_1;
  address_of_1.endpoint = here;
  auto rank_0 = Tcp::create(0, 2, [&](int) { return Result(address_of_1.encode()); });
  ASSERT_TRUE(rank_0.ok());
  Message message(0, 1, 1, 100);
  ASSERT_TRUE(
      (*rank_0)->send(1, message.key, message.sent.data(), message.sent.size(), message.sending).ok());
  const double deadline = now_seconds() + patience_seconds;
  while (!message.sending.finished() && now_seconds() < deadline) (*rank_0)->progress();
  ASSERT_EQ(message.sending.state, Completion::State::done);

  const auto address_of_0 = *tcp::Address::decode((*rank_0)->address());
  const UniqueFd late = std::move(net::connect_to(address_of_0.endpoint, 1.0)).value();
  tcp::Hello hello;
  hello.cookie = address_of_0.cookie;
  hello.from = 1;
  hello.to = 0;
  ASSERT_EQ(::send(late.get(), &hello, sizeof hello, 0), static_cast<ssize_t>(sizeof hello));
  char verdict = 0;
  while (::recv(late.get(), &verdict, 1, MSG_DONTWAIT) < 0 && now_seconds() < deadline) (*rank_0)->progress();
  EXPECT_EQ(verdict, static_cast<char>(tcp::Verdict::declined));
}

// A rank of another machine that has an address of this one: a loopback address, or that of a bridge that all machines have alike.
TEST(TcpConnections, ToAnAddressOfThisMachineThatFailAreToldAsSuch) {
  const auto own = net::local_address("");
  std::vector<std::pair<net::Endpoint, const char*>> cases = {
      {*net::local_address("lo"), "leave it a loopback address"}};
  if (!own->is_loopback()) cases.emplace_back(*own, "that address is also one of this machine's own");
  for (auto& [at, words] : cases) {
    ASSERT_TRUE(net::listen_at(at).ok());  // and not any more
    tcp::Address address_of_1;
    address_of_1.endpoint = at;
    auto rank_0 = Tcp::create(0, 2, [&](int) { return Result(address_of_1.encode()); });
    ASSERT_TRUE(rank_0.ok());
    Message message(0, 1, 1, 100);
    const Status posted =
        (*rank_0)->send(1, message.key, message.sent.data(), message.sent.size(), message.sending);
    const double deadline = now_seconds() + patience_seconds;
    while (posted.ok() && !message.sending.finished() && now_seconds() < deadline) (*rank_0)->progress();
    const std::string why = posted.ok() ? message.sending.status.message() : posted.message();
    for (const char* part : {words, "EPCCL_SOCKET_IFNAME"})
      EXPECT_NE(why.find(part), std::string::npos) << why;
  }
}

UniqueFd connect_like_a_stranger(TcpTransport& transport, tcp::Address& address) {
  address = *tcp::Address::decode(transport.address());
  auto socket = net::connect_to(address.endpoint, 1.0);
  EXPECT_TRUE(socket.ok());
  return std::move(socket).value();
}

bool is_closed(Fabric<Tcp>& fabric, const UniqueFd& socket) {
  char byte = 0;
  return fabric.drive_until([&] {
    const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  });
}

TEST(TcpStrangers, AreRefusedWithoutEffect) {
  Fabric<Tcp> fabric(2);
  tcp::Address address;
  tcp::Hello right;
  right.cookie = tcp::Address::decode(fabric[0].address())->cookie;
  right.from = 1;
  right.to = 0;
  tcp::Hello wrong_cookie = right, wrong_magic = right, no_rank = right, another = right;
  wrong_cookie.cookie[15] ^= 1;
  wrong_magic.magic[0] = 'X';
  no_rank.from = 2;
  another.to = 1;
  for (const tcp::Hello& hello : {wrong_cookie, wrong_magic, no_rank, another}) {
    const UniqueFd socket = connect_like_a_stranger(fabric[0], address);
    ASSERT_EQ(::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello));
    EXPECT_TRUE(is_closed(fabric, socket));
  }
  std::deque<UniqueFd> silent;  // many that say nothing, or half of it, keep nobody out
  for (int i = 0; i < 100; ++i) {
    silent.push_back(connect_like_a_stranger(fabric[0], address));
    (void)!::send(silent.back().get(), &right, sizeof right / 2, MSG_NOSIGNAL);
  }
  fabric.settle();
  Message message(1, 0, 1, 1000);
  ASSERT_TRUE(message.recv(fabric).ok());
  ASSERT_TRUE(message.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(message.receiving));
  message.expect_arrived();
}

TEST(TcpStrangers, AreKeptUntilTheySayWhoTheyAreIfAllOtherRanksCallAtOnce) {
  constexpr int ranks = 200;
  const auto unused = [](int) -> Result<std::vector<std::byte>> {
    return error(Code::internal_error, "unused");
  };
  auto made = Tcp::create(0, ranks, unused);
  ASSERT_TRUE(made.ok()) << made.status().message();
  TcpTransport& rank_0 = **made;
  const auto drive_a_while = [&] {
    for (int quiet = 0; quiet < 1000; ++quiet)
      if (rank_0.progress()) quiet = 0;
  };
  tcp::Address address;
  std::deque<UniqueFd> others;
  for (int rank = 1; rank < ranks; ++rank) others.push_back(connect_like_a_stranger(rank_0, address));
  drive_a_while();
  tcp::Hello hello;
  hello.cookie = address.cookie;
  hello.to = 0;
  for (int rank = 1; rank < ranks; ++rank) {
    hello.from = rank;
    const UniqueFd& socket = others[static_cast<size_t>(rank - 1)];
    ASSERT_EQ(::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello))
        << "rank " << rank << " was sent away";
  }
  drive_a_while();
  EXPECT_EQ(rank_0.counters().connections, ranks - 1U);
}

// They came before the rank did, and as many at once as are kept: the oldest of them makes room.
TEST(TcpStrangers, DoNotKeepOutARankThatComesBehindThemAll) {
  Fabric<Tcp> fabric(2);
  tcp::Address address;
  std::deque<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connect_like_a_stranger(fabric[0], address));
  Message message(1, 0, 1, 1000);
  ASSERT_TRUE(message.recv(fabric).ok());
  ASSERT_TRUE(message.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(message.receiving));
  message.expect_arrived();
  EXPECT_TRUE(is_closed(fabric, silent.front()));
}

/// A rank whose connection is in the test's hands: it says what a rank says, and then what no rank does.
class Imposter {
 public:
  explicit Imposter(Fabric<Tcp>& fabric) : fabric_(fabric) {
    tcp::Address address;
    socket_ = connect_like_a_stranger(fabric[0], address);
    tcp::Hello hello;
    hello.cookie = address.cookie;
    hello.from = 1;
    hello.to = 0;
    put(&hello, sizeof hello);
    char verdict = 0;
    EXPECT_TRUE(fabric.drive_until([&] { return ::recv(socket_.get(), &verdict, 1, MSG_DONTWAIT) == 1; }));
    EXPECT_EQ(verdict, static_cast<char>(tcp::Verdict::welcome));
  }
  void put(const void* data, size_t bytes) {
    ASSERT_EQ(::send(socket_.get(), data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }

 private:
  Fabric<Tcp>& fabric_;
  UniqueFd socket_;
};

TEST(TcpStreams, AreEndedByWhatIsNoMessage) {
  struct Header {
    uint64_t key, bytes, taken;
  };
  const std::pair<Header, const char*> cases[] = {
      {{uint64_t{1} << 60, 8, 0}, "it sent what is no message: key 0x1000000000000000, 8 bytes"},
      {{7, uint64_t{1} << 60, 0}, "it sent what is no message: key 0x7, 1152921504606846976 bytes"}};
  for (const auto& [header, words] : cases) {
    Fabric<Tcp> fabric(2);
    Imposter imposter(fabric);
    Message message(1, 0, 1, 1000);
    ASSERT_TRUE(message.recv(fabric).ok());
    imposter.put(&header, sizeof header);
    ASSERT_TRUE(fabric.finish(message.receiving));
    EXPECT_NE(message.receiving.status.message().find(words), std::string::npos)
        << message.receiving.status.message();
  }
}

TEST(TcpStreams, StopASenderWhoseMessagesNobodyAsksFor) {
  Fabric<Tcp> fabric(2);
  Message hello(0, 1, 0, 1);
  ASSERT_TRUE(hello.recv(fabric).ok());
  ASSERT_TRUE(hello.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(hello.receiving));
  std::deque<Message> messages;
  for (MessageKey key = 1; key <= 64; ++key) {
    messages.emplace_back(0, 1, key, 1 << 20);
    ASSERT_TRUE(messages.back().send(fabric).ok());
  }
  fabric.settle();
  const auto done = std::ranges::count_if(messages, [](const Message& m) { return m.sending.finished(); });
  EXPECT_LT(done, 32) << "the receiver swallowed what it has no place for";
  // The last one first: what lies before it has to be taken after all.
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    ASSERT_TRUE(message->recv(fabric).ok());
    ASSERT_TRUE(fabric.finish(message->receiving));
    message->expect_arrived();
  }
}

// Its end lies behind what this rank does not read.
TEST(TcpStreams, ThatAreStoppedFailTheirSendsWhenThePeerEnds) {
  Fabric<Tcp> fabric(2);
  std::deque<Message> unasked;
  for (MessageKey key = 1; key <= 64; ++key) {
    unasked.emplace_back(0, 1, key, 1 << 20);
    ASSERT_TRUE(unasked.back().send(fabric).ok());
  }
  fabric.settle();
  fabric.destroy(0);
  std::vector<char> data(16 << 20);
  Completion sending;
  ASSERT_TRUE(fabric[1].send(0, 100, data.data(), data.size(), sending).ok());
  ASSERT_TRUE(fabric.finish(sending));
  EXPECT_EQ(sending.state, Completion::State::failed);
  EXPECT_NE(sending.status.message().find("rank 0"), std::string::npos) << sending.status.message();
}

// Of a call that its receiver made otherwise, or not at all: a later call takes neither it nor what lies behind it for its own.
TEST(TcpMessages, ThatNoReceiveTookFailTheFirstReceiveOfAnotherCall) {
  constexpr MessageKey call = MessageKey{1} << message_tag_bits;
  for (const bool is_there : {true, false}) {
    SCOPED_TRACE(is_there ? "before the receive is posted" : "after that");
    Fabric<Tcp> fabric(2);
    Message hello(0, 1, of_no_call | 1, 1), unknown(0, 1, 3 * call + 1, 100), wanted(0, 1, 4 * call + 1, 100),
        of_no(0, 1, of_no_call | 2, 100);
    if (is_there) {
      ASSERT_TRUE(unknown.send(fabric).ok());
      ASSERT_TRUE(wanted.send(fabric).ok());
      ASSERT_TRUE(hello.send(fabric).ok());
      ASSERT_TRUE(hello.recv(fabric).ok());
      ASSERT_TRUE(fabric.finish(hello.receiving));
      static_cast<void>(wanted.recv(fabric));
    } else {
      ASSERT_TRUE(wanted.recv(fabric).ok());
      ASSERT_TRUE(unknown.send(fabric).ok());
    }
    ASSERT_TRUE(of_no.send(fabric).ok());
    ASSERT_TRUE(of_no.recv(fabric).ok());
    ASSERT_TRUE(fabric.finish(wanted.receiving));
    EXPECT_EQ(wanted.receiving.state, Completion::State::failed);
    EXPECT_EQ(wanted.receiving.found, unknown.key);
    ASSERT_TRUE(fabric.finish(of_no.receiving));
    of_no.expect_arrived();
  }
}

TEST(TcpMessages, OfACallMayComeAndBeAskedForInAnyOrder) {
  constexpr MessageKey call = MessageKey{1} << message_tag_bits;
  Fabric<Tcp> fabric(2);
  for (MessageKey number = 1; number < 4; ++number) {
    std::deque<Message> messages;
    for (MessageKey tag = 0; tag < 4; ++tag) messages.emplace_back(0, 1, number * call + tag, 100);
    for (const size_t sent : {2u, 0u, 3u, 1u}) ASSERT_TRUE(messages[sent].send(fabric).ok());
    if (number == 2) fabric.settle();
    for (const size_t asked : {1u, 3u, 2u, 0u}) ASSERT_TRUE(messages[asked].recv(fabric).ok());
    ASSERT_TRUE(fabric.drive_until([&] { return std::ranges::all_of(messages, &Message::finished); }));
    for (const Message& message : messages) message.expect_arrived();
  }
}

}  // namespace
}  // namespace epccl::transports
