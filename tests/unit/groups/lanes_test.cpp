// Lanes themselves: one that stands still in the middle of a frame, one whose carrier or origin goes away, one that lies.
#include <sys/socket.h>

#include <cstring>

#include "cluster.hpp"
#include "transports/tcp/lane.hpp"
#include "transports/tcp/message_stream.hpp"

namespace epccl::runtime {
namespace {

using transports::Completion;
using transports::Lanes;
using transports::MessageKey;

// ---- a lane that stands still -------------------------------------------------------------------------------------------

/// A network whose lanes take `space` bytes, and which notes what is sent directly.
class TightNetwork final : public transports::MessageTransport, public Lanes {
 public:
  size_t space = 0;
  std::vector<std::byte> taken;
  std::vector<MessageKey> direct;
  int cuts = 0;

  const char* name() const override { return "tight"; }
  Status send(int, MessageKey key, const void*, size_t, Completion& completion) override {
    direct.push_back(key);
    completion.state = Completion::State::done;
    return {};
  }
  Status recv(int, MessageKey, void*, size_t, Completion&) override { return {}; }
  bool progress() override { return false; }
  bool drained() override { return true; }
  int event_fd() const override { return -1; }
  bool arm(bool) override { return true; }
  void cancel_all() override {}
  const transports::MessageCounters& counters() const override { return counters_; }
  Lanes* lanes() override { return this; }

  uint64_t allowance(int) override { return 1 << 20; }
  void frame(int, MessageKey, const void* data, size_t bytes, std::byte* at) override {
    std::memset(at, 0, frame_header);
    std::memcpy(at + frame_header, data, bytes);
  }
  void unframe(int, uint64_t bytes) override { unframed += bytes; }
  bool open(int) override { return true; }
  size_t room(int) override { return 1 << 20; }
  size_t write(int, std::span<const iovec> pieces) override {
    size_t written = 0;
    for (const iovec& piece : pieces) {
      const size_t part = std::min(piece.iov_len, space);
      const auto* const from = static_cast<const std::byte*>(piece.iov_base);
      taken.insert(taken.end(), from, from + part);
      space -= part;
      written += part;
    }
    return written;
  }
  void cut(int) override { ++cuts; }
  uint64_t unframed = 0;

 private:
  transports::MessageCounters counters_;
};

/// Rank 0 has three messages for rank 3, which rank 1 carries on a lane that takes `space` bytes.
class StandingLane : public testing::Test {
 protected:
  static CarryPolicy policy() {
    CarryPolicy policy;
    policy.aggregate = Aggregate::always;
    policy.gather_seconds = 0;
    policy.patience_seconds = 1e3;
    policy.leave_seconds = 5e-3;
    policy.tail_seconds = 1e3;
    return policy;
  }
  static constexpr size_t bytes = 100, frame = Lanes::framed(bytes);

  void hand_over(size_t space) {
    carriers_.space = space;
    carrier_.begin({1, 1, 1});  // it has sends of its own, and so a lane
    carrier_.lay_out();
    origin_.begin({3, 3 * bytes, 1});
    for (MessageKey key = 0; key < 3; ++key) {
      const auto at = static_cast<size_t>(key);
      ASSERT_TRUE(origin_.offer(3, key, data_[at].data(), bytes, completions_[at]));
    }
    origin_.lay_out();
    ASSERT_TRUE(carrier_.progress().ok());
    ASSERT_TRUE(origin_.progress().ok());
  }
  bool finished(size_t message) const { return completions_[message].finished(); }
  void leave() {
    const double deadline = now_seconds() + patience_seconds;
    while (!carrier_.end()) ASSERT_LT(now_seconds(), deadline) << "the carrier is stuck in its call";
    ASSERT_TRUE(origin_.progress().ok());
  }

  TestCluster cluster_{{2, 2}, {}};
  TightNetwork origins_, carriers_;
  Carrying origin_{cluster_.shape(), 0, *cluster_[0].node, &origins_, policy()};
  Carrying carrier_{cluster_.shape(), 1, *cluster_[1].node, &carriers_, policy()};
  std::array<std::array<char, bytes>, 3> data_{};
  std::array<Completion, 3> completions_{};
};

TEST_F(StandingLane, ThatTakesAllIsAllThereIs) {
  hand_over(3 * frame);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(finished(i));
  EXPECT_EQ(origins_.direct.size(), 0u);
  leave();
  EXPECT_EQ(carriers_.cuts, 0);
}

TEST_F(StandingLane, GoesOnWhenThereIsRoomAgain) {
  hand_over(frame + 30);
  EXPECT_FALSE(finished(0)) << "the parcel is one: its buffers are not free before all of it is gone";
  carriers_.space = 1000;
  ASSERT_TRUE(carrier_.progress().ok());
  ASSERT_TRUE(origin_.progress().ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(finished(i));
  EXPECT_EQ(carriers_.taken.size(), 3 * frame);
}

// The destination drops the half frame; what was whole before it must not come twice.
TEST_F(StandingLane, IsCutByACarrierThatLeavesAndTheRestGoesDirectly) {
  hand_over(frame + 30);
  leave();
  EXPECT_EQ(carriers_.cuts, 1);
  EXPECT_EQ(origins_.direct, (std::vector<MessageKey>{1, 2}));
  EXPECT_EQ(origins_.unframed, 2 * frame);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(finished(i));
}

TEST_F(StandingLane, ThatTakesNothingHoldsNothing) {
  hand_over(0);
  leave();
  EXPECT_EQ(carriers_.cuts, 0);
  // The origin sees that its carrier has left.
  ASSERT_TRUE(origin_.progress().ok());
  EXPECT_EQ(origins_.direct, (std::vector<MessageKey>{0, 1, 2}));
}

// ---- on sockets ---------------------------------------------------------------------------------------------------------

/// Ranks 0 and 1 on one node, 2 and 3 on another; rank 1 has an open lane to rank 2.
class OpenLane : public testing::Test {
 protected:
  void SetUp() override {
    const double deadline = now_seconds() + patience_seconds;
    while (!lanes(1).open(2)) {
      drive();
      ASSERT_LT(now_seconds(), deadline);
    }
  }
  void drive() {
    for (int rank = 0; rank < 4; ++rank)
      if (cluster_[rank].network) cluster_.drive_network(rank);
  }
  bool drive_until(const Completion& completion) {
    const double deadline = now_seconds() + patience_seconds;
    while (!completion.finished() && now_seconds() < deadline) drive();
    return completion.finished();
  }
  void settle() {
    for (int i = 0; i < 2000; ++i) drive();
  }
  Lanes& lanes(int rank) { return *cluster_[rank].network->lanes(); }
  transports::TcpTransport& network(int rank) { return *cluster_[rank].network; }
  size_t write(std::span<const std::byte> bytes) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return lanes(1).write(2, std::span(&piece, 1));
  }
  std::vector<std::byte> framed(int origin, MessageKey key, const std::string& text) {
    std::vector<std::byte> frame(Lanes::framed(text.size()));
    lanes(origin).frame(2, key, text.data(), text.size(), frame.data());
    return frame;
  }
  /// What rank 2 gets from `source`.
  std::string receive(int source, MessageKey key) {
    std::string text(50, '.');
    Completion completion;
    EXPECT_TRUE(network(2).recv(source, key, text.data(), text.size(), completion).ok());
    EXPECT_TRUE(drive_until(completion));
    EXPECT_EQ(completion.state, Completion::State::done) << completion.status.message();
    text.resize(completion.bytes);
    return text;
  }

  TestCluster cluster_{{2, 2}, {}};
};

TEST_F(OpenLane, BringsMessagesUnderTheNameOfTheirOrigin) {
  std::vector<std::byte> both = framed(0, 7, "from zero");
  const auto second = framed(1, 7, "from one");
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(write(both), both.size());
  EXPECT_EQ(receive(1, 7), "from one");
  EXPECT_EQ(receive(0, 7), "from zero");
}

TEST_F(OpenLane, AndTheDirectWayMayOvertakeEachOther) {
  std::string direct = "direct";
  Completion sent;
  ASSERT_TRUE(network(0).send(2, 1, direct.data(), direct.size(), sent).ok());
  ASSERT_TRUE(drive_until(sent));
  const auto frame = framed(0, 2, "carried");
  EXPECT_EQ(write(frame), frame.size());
  EXPECT_EQ(receive(0, 2), "carried");
  EXPECT_EQ(receive(0, 1), "direct");
}

TEST_F(OpenLane, ThatIsCutLosesTheHalfFrameAndNothingElse) {
  const auto whole = framed(0, 1, "whole"), half = framed(0, 2, "half");
  EXPECT_EQ(write(whole), whole.size());
  EXPECT_EQ(write(std::span(half).first(half.size() - 1)), half.size() - 1);
  lanes(1).cut(2);
  std::string again = "half";
  Completion sent;
  ASSERT_TRUE(network(0).send(2, 2, again.data(), again.size(), sent).ok());
  EXPECT_EQ(receive(0, 2), "half");
  EXPECT_EQ(receive(0, 1), "whole");
  // There can be another lane.
  const double deadline = now_seconds() + patience_seconds;
  while (!lanes(1).open(2) && now_seconds() < deadline) drive();
  const auto next = framed(0, 3, "next");
  EXPECT_EQ(write(next), next.size());
  EXPECT_EQ(receive(0, 3), "next");
}

// Its connection ends before what it has had carried arrives: that is no failure.
TEST_F(OpenLane, BringsTheLastMessagesOfARankThatHasLeft) {
  std::string direct = "hello";
  Completion sent;
  ASSERT_TRUE(network(0).send(2, 1, direct.data(), direct.size(), sent).ok());
  EXPECT_EQ(receive(0, 1), "hello");
  const auto last = framed(0, 2, "last");
  std::string waiting(50, '.'), in_vain(50, '.');
  Completion receiving, missing;
  ASSERT_TRUE(network(2).recv(0, 2, waiting.data(), waiting.size(), receiving).ok());
  ASSERT_TRUE(network(2).recv(0, 3, in_vain.data(), in_vain.size(), missing).ok());
  cluster_[0].network.reset();
  settle();
  EXPECT_FALSE(receiving.finished()) << receiving.status.message();
  EXPECT_EQ(write(last), last.size());
  ASSERT_TRUE(drive_until(receiving));
  EXPECT_EQ(receiving.state, Completion::State::done) << receiving.status.message();
  EXPECT_EQ(waiting.substr(0, receiving.bytes), "last");
  ASSERT_TRUE(drive_until(missing)) << "nothing more can come";
  EXPECT_EQ(missing.state, Completion::State::failed);
}

// Nor where its connection is full when it leaves, since the peer has not come to read.
TEST(FullStream, TellsOfWhatIsOnLanesAllTheSame) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  std::vector<std::byte> staging(64 << 10);
  transports::MessageCounters counters;
  transports::tcp::MessageStream leaving(0, 2, staging, counters), staying(2, 0, staging, counters);
  leaving.attach(UniqueFd(pair[0]));
  staying.attach(UniqueFd(pair[1]));
  const uint64_t empty_message[] = {1, 0, 0};  // key, bytes, taken
  while (::send(pair[0], empty_message, sizeof empty_message, MSG_NOSIGNAL) > 0) {
  }
  leaving.carried().sent = Lanes::framed(4);
  std::string waiting(50, '.');
  Completion receiving;
  staying.recv(2, waiting.data(), waiting.size(), receiving);
  leaving.close(now_seconds());
  staying.hung_up();
  while (staying.pump()) {
  }
  EXPECT_FALSE(receiving.finished()) << receiving.status.message();
  staying.arrive(2, std::as_bytes(std::span("last", 4)), 0);
  EXPECT_EQ(receiving.state, Completion::State::done) << receiving.status.message();
  EXPECT_EQ(waiting.substr(0, receiving.bytes), "last");
}

// The carrier's process has left for good, and what it carried arrives all the same.
TEST_F(OpenLane, DeliversAfterItsCarrierHasLeft) {
  const auto frame = framed(0, 1, "carried");
  EXPECT_EQ(write(frame), frame.size());
  cluster_[1].network.reset();
  EXPECT_EQ(receive(0, 1), "carried");
}

using Header = transports::tcp::FrameHeader;

class LyingLane : public OpenLane, public testing::WithParamInterface<void (*)(Header&)> {};

TEST_P(LyingLane, IsEndedWithoutEffect) {
  auto frame = framed(0, 1, "lie");
  Header header;
  std::memcpy(&header, frame.data(), sizeof header);
  GetParam()(header);
  std::memcpy(frame.data(), &header, sizeof header);
  EXPECT_EQ(write(frame), frame.size());
  settle();
  EXPECT_EQ(network(2).counters().messages_by_lane, 0u);
  EXPECT_FALSE(lanes(1).open(2)) << "it is still open";
  std::string direct = "direct";
  Completion sent;
  ASSERT_TRUE(network(1).send(2, 1, direct.data(), direct.size(), sent).ok());
  EXPECT_EQ(receive(1, 1), "direct");
}

INSTANTIATE_TEST_SUITE_P(Lies, LyingLane,
                         testing::Values([](Header& h) { h.origin = 2; },   // the destination itself
                                         [](Header& h) { h.origin = 3; },   // on the destination's node
                                         [](Header& h) { h.origin = 4; },   // no rank
                                         [](Header& h) { h.origin = -1; },  //
                                         [](Header& h) { h.bytes = Lanes::largest_frame; },
                                         [](Header& h) { h.bytes = ~uint32_t{0}; },
                                         [](Header& h) { h.key = ~uint64_t{0}; }));

TEST(InLanes, TakeAnyBytesInAnyPieces) {
  auto random = seeded_random();
  std::vector<std::byte> staging(64 << 10);
  for (int attempt = 0; attempt < 300; ++attempt) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    const UniqueFd writer(pair[0]);
    transports::tcp::InLane lane(1, UniqueFd(pair[1]));
    std::vector<std::byte> stream;
    std::vector<std::vector<std::byte>> expected, found;
    const bool honest = attempt % 2 == 0;
    for (uint64_t frames = random() % 20; frames > 0; --frames) {
      transports::tcp::FrameHeader header;
      header.key = random() >> 20;
      header.bytes = static_cast<uint32_t>(random() % 3 == 0 ? random() % 30'000 : random() % 100);
      header.origin = static_cast<int32_t>(random() % 4);
      std::vector<std::byte> data(header.bytes);
      for (std::byte& byte : data) byte = static_cast<std::byte>(random());
      const auto* const bytes = reinterpret_cast<const std::byte*>(&header);
      stream.insert(stream.end(), bytes, bytes + sizeof header);
      stream.insert(stream.end(), data.begin(), data.end());
      expected.push_back(std::move(data));
    }
    if (!honest)
      for (uint64_t flips = 1 + random() % 50; flips > 0 && !stream.empty(); --flips)
        stream[random() % stream.size()] = static_cast<std::byte>(random());
    Status status;
    for (size_t at = 0; at < stream.size() && status.ok();) {
      const size_t piece = std::min<size_t>(1 + random() % 20'000, stream.size() - at);
      const ssize_t sent = ::send(writer.get(), stream.data() + at, piece, MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<size_t>(sent);
      status = lane.read(staging, false, [&](const auto&, std::span<const std::byte> data) {
        found.emplace_back(data.begin(), data.end());
        return true;
      });
    }
    if (!honest) continue;
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(found == expected);
  }
}

}  // namespace
}  // namespace epccl::runtime
