// One connection of the tcp transport by itself, its other end in the test's hands.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/net.hpp"
#include "transports/tcp/message_stream.hpp"

namespace epccl::transports::tcp {
namespace {

using State = Completion::State;

/// Rank 1's connection to rank 0, whose end is a plain socket.
class StreamToRank0 : public testing::Test {
 protected:
  void connect_in_memory() {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    end_ = UniqueFd(pair[0]);
    stream_.attach(UniqueFd(pair[1]));
  }
  void connect_by_tcp() {
    net::Endpoint here = *net::local_address("lo");
    const UniqueFd listener = std::move(net::listen_at(here)).value();
    end_ = std::move(net::connect_to(here, 1.0)).value();
    ASSERT_TRUE(net::wait_for(listener.get(), POLLIN, now_seconds() + patience));
    stream_.attach(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    ASSERT_TRUE(stream_.attached());
  }

  /// Header and data, as rank 0 would send them.
  static std::vector<char> message(MessageKey key, size_t bytes) {
    const uint64_t header[] = {key, bytes, 0};  // nothing of lanes has been taken
    std::vector<char> all(sizeof header + bytes, 'm');
    std::memcpy(all.data(), header, sizeof header);
    return all;
  }
  void put(std::span<const char> bytes) {
    ASSERT_EQ(::send(end_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  bool becomes_readable(double seconds) {
    return net::wait_for(stream_.fd(), POLLIN, now_seconds() + seconds);
  }
  /// Reads what has come, and moves what it can.
  void read() {
    stream_.readable();
    while (stream_.pump()) {
    }
  }
  template <typename Predicate>
  bool read_until(Predicate done) {
    for (const double deadline = now_seconds() + patience; !done();) {
      if (now_seconds() > deadline) return false;
      read();
    }
    return true;
  }

  /// Far above what any step takes; only a hang reaches it.
  static constexpr double patience = 20;

  std::vector<std::byte> staging_ = std::vector<std::byte>(64 << 10);
  MessageCounters counters_;
  MessageStream stream_{1, 0, staging_, counters_};
  UniqueFd end_;
};

// However much came too early: once it is taken, the next message is again read before anybody asks for it.
TEST_F(StreamToRank0, ReadsAheadAgainWhenWhatCameEarlyIsTaken) {
  connect_in_memory();
  constexpr size_t short_bytes = 10'000, long_bytes = 60'000;
  std::vector<char> room(long_bytes);
  for (MessageKey round = 0; round < 120; ++round) {  // more than a megabyte of both
    const auto whole = message(2 * round, short_bytes), half = message(2 * round + 1, long_bytes);
    const std::span<const char> begin = std::span(half).first(long_bytes / 2),
                                rest = std::span(half).subspan(long_bytes / 2);
    put(whole);
    read();
    put(begin);
    read();
    Completion first, second;
    stream_.recv(2 * round, room.data(), room.size(), first);
    ASSERT_EQ(first.state, State::done) << "it has not been read, in round " << round;
    stream_.recv(2 * round + 1, room.data(), room.size(), second);
    EXPECT_FALSE(second.finished());
    put(rest);
    ASSERT_TRUE(read_until([&] { return second.finished(); }));
    EXPECT_EQ(second.state, State::done) << second.status.message();
  }
}

// Who has slept until much of a message was there hears of a short one behind it without having armed anew.
TEST_F(StreamToRank0, HearsOfAShortMessageBehindALongOne) {
  connect_by_tcp();
  constexpr size_t bytes = 200'000;
  std::vector<char> room(bytes);
  const auto large = message(1, bytes), small = message(2, 8);
  Completion receiving, short_one;
  stream_.recv(1, room.data(), room.size(), receiving);
  put(std::span(large).first(bytes / 2));
  ASSERT_TRUE(becomes_readable(patience));
  read();
  stream_.set_low_water(true);
  put(std::span(large).subspan(bytes / 2));
  ASSERT_TRUE(read_until([&] { return receiving.finished(); }));
  stream_.recv(2, room.data(), room.size(), short_one);
  put(small);
  EXPECT_TRUE(becomes_readable(2));
  ASSERT_TRUE(read_until([&] { return short_one.finished(); }));
}

// A buffer that is gone is this process's own doing: rank 0 has not failed.
TEST_F(StreamToRank0, BlamesNobodyForABufferThatIsNotThere) {
  connect_in_memory();
  constexpr size_t bytes = 128 << 10, there = 64 << 10;
  void* const room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(room, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(room) + there, bytes - there, PROT_NONE), 0);
  Completion receiving;
  stream_.recv(1, room, bytes, receiving);
  put(message(1, bytes));
  ASSERT_TRUE(read_until([&] { return receiving.finished(); }));
  EXPECT_EQ(receiving.state, State::failed);
  EXPECT_EQ(receiving.status.code(), Code::system_error) << receiving.status.message();
  munmap(room, bytes);
}

// It says so at once, though what rank 0 has had carried may still come.
TEST_F(StreamToRank0, SendsNothingToARankThatHasLeft) {
  connect_in_memory();
  const uint64_t farewell[] = {~uint64_t{0}, 100, 0};  // 100 bytes are on lanes
  put({reinterpret_cast<const char*>(farewell), sizeof farewell});
  end_.reset();
  Completion receiving, sending;
  char byte = 0;
  stream_.recv(1, &byte, 1, receiving);
  stream_.hung_up();
  read();
  EXPECT_FALSE(receiving.finished());
  stream_.send(1, &byte, 1, sending);
  ASSERT_TRUE(sending.finished());
  EXPECT_EQ(sending.state, State::failed);
  EXPECT_EQ(sending.status.code(), Code::remote_error) << sending.status.message();
}

// The last message and the end may be read at once: then nothing is lost with the connection, and no warning is due.
TEST_F(StreamToRank0, CountsWhatIsPendingWhenTheConnectionEnds) {
  connect_in_memory();
  Completion last, never;
  char byte = 0;
  stream_.recv(1, &byte, 1, last);
  put(message(1, 1));
  end_.reset();
  stream_.hung_up();
  read();
  EXPECT_EQ(last.state, State::done) << last.status.message();
  EXPECT_FALSE(stream_.failure().ok());
  EXPECT_EQ(stream_.pending(), 0u);

  MessageStream other(1, 0, staging_, counters_);
  other.recv(2, &byte, 1, never);
  other.fail({Code::remote_error, "the end"});
  EXPECT_EQ(other.pending(), 1u);
}

// Who leaves need not have read all that was sent to it: what it has sent itself arrives all the same.
TEST_F(StreamToRank0, LosesNothingWhereItIsClosedOnUnreadData) {
  connect_by_tcp();
  std::vector<char> data(100'000, 'd');
  std::deque<Completion> sends;
  size_t taken = 0;
  stream_.writable();
  do {  // until the socket is full
    sends.emplace_back();
    stream_.send(1, data.data(), data.size(), sends.back());
    if (sends.back().finished()) taken += data.size();
  } while (sends.back().finished());
  put(message(1, 1000));
  ASSERT_TRUE(becomes_readable(patience));
  stream_.close(now_seconds());
  stream_.fail({Code::remote_error, "the end"});
  size_t arrived = 0;
  while (net::wait_for(end_.get(), POLLIN, now_seconds() + patience)) {
    const ssize_t got = ::recv(end_.get(), data.data(), data.size(), MSG_DONTWAIT);
    if (got <= 0) break;
    arrived += static_cast<size_t>(got);
  }
  EXPECT_GE(arrived, taken);
}

}  // namespace
}  // namespace epccl::transports::tcp
