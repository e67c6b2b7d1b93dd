// What a group that is not over says of what it waits for, and when it is over.
#include <deque>

#include "cluster.hpp"

namespace epccl::runtime {
namespace {

// The first of them in the group's order, whichever ended before it: what the user wrote is found by that.
TEST(WaitingGroups, NameTheFirstMessageThatIsMissing) {
  TestCluster cluster({4}, {});
  std::deque<Wish> wishes;
  std::vector<P2pOperation> receives;
  for (const int source : {3, 1, 2}) receives.push_back(wishes.emplace_back(source, 0, 10, 1).recv());
  ASSERT_TRUE(cluster.p2p(0).start(receives).ok());
  const auto text = [&] { return cluster.p2p(0).waiting_text(); };
  EXPECT_EQ(text(), "rank 3: recv of 10 uint8 from rank 3");
  EXPECT_EQ(cluster.p2p(0).waited_for(), (std::vector<int>{1, 2, 3}));
  ASSERT_TRUE(cluster.p2p(3).start({wishes[0].send()}).ok());
  while (cluster.p2p(0).waited_for().size() == 3) {
    cluster.drive(3);
    cluster.drive(0);
  }
  EXPECT_EQ(text(), "rank 1: recv of 10 uint8 from rank 1");
  EXPECT_EQ(cluster.p2p(0).waited_for(), (std::vector<int>{1, 2}));
  for (const int source : {1, 2})
    ASSERT_TRUE(cluster.p2p(source).start({wishes[static_cast<size_t>(source)].send()}).ok());
  ASSERT_TRUE(cluster.finish({0, 1, 2, 3}));
  EXPECT_EQ(text(), "nothing");
  EXPECT_TRUE(cluster.p2p(0).waited_for().empty());
}

/// Takes each message at once, but has to be driven for it to leave.
class SlowToLeave : public transports::MessageTransport {
 public:
  const char* name() const override { return "slow"; }
  Status send(int, transports::MessageKey, const void*, size_t bytes,
              transports::Completion& completion) override {
    completion.bytes = bytes;
    completion.finish(transports::Completion::State::done);
    return {};
  }
  Status recv(int, transports::MessageKey, void*, size_t, transports::Completion&) override { return {}; }
  bool progress() override {
    ++driven;
    return true;
  }
  bool drained() override { return has_left; }
  int event_fd() const override { return -1; }
  bool arm(bool) override { return true; }
  void cancel_all() override {}
  const transports::MessageCounters& counters() const override { return counters_; }

  bool has_left = false;
  int driven = 0;

 private:
  transports::MessageCounters counters_;
};

// Who went on would leave the receiver waiting.
TEST(WaitingGroups, AreNotOverBeforeWhatTheySentHasLeft) {
  TestCluster cluster({1, 1}, {});
  SlowToLeave network;
  Carrying carrying(cluster.shape(), 0, *cluster[0].node, &network, {});
  P2p p2p(cluster.shape(), 0, *cluster[0].shm, &network, carrying, 0);
  Wish wish(0, 1, 10, 1);
  ASSERT_TRUE(p2p.start({wish.send()}).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(p2p.progress().ok());
  EXPECT_FALSE(p2p.done());
  EXPECT_TRUE(p2p.network_pending());
  EXPECT_EQ(network.driven, 3);
  network.has_left = true;
  ASSERT_TRUE(p2p.progress().ok());
  EXPECT_TRUE(p2p.done());
  EXPECT_FALSE(p2p.network_pending());
}

}  // namespace
}  // namespace epccl::runtime
