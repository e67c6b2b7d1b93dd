// Messages in fragments that are longer than their receives.
#include <string>

#include "node.hpp"
#include "transports/shm/shm_messages.hpp"

namespace epccl::transports {
namespace {

using State = Completion::State;

class ShortReceives : public testing::Test {
 protected:
  ShortReceives() : node_(2), sender_(node_[0], false), receiver_(node_[1], false) {}

  /// Until the receive has failed, before the message is through.
  void fail_a_receive(Completion& completion) {
    ASSERT_TRUE(receiver_.recv(0, 7, short_.data(), short_.size(), completion).ok());
    ASSERT_TRUE(sender_.send(1, 7, message_.data(), message_.size(), sent_).ok());
    receiver_.progress();
    ASSERT_EQ(completion.state, State::failed);
    ASSERT_EQ(sent_.state, State::pending);
  }

  Node node_;
  ShmMessages sender_, receiver_;
  const std::string message_ = std::string(100 * RingSlot::capacity, 'm');
  std::string short_ = std::string(10, '-');
  Completion sent_;
};

// Whoever posted the receive may have given its completion to another, or back to the heap.
TEST_F(ShortReceives, ThatHaveFailedAreForgotten) {
  Completion completion;
  fail_a_receive(completion);
  completion.state = State::pending;
  receiver_.cancel_all();
  EXPECT_EQ(completion.state, State::pending) << "it is not the receiver's any more";
}

TEST_F(ShortReceives, HoldUpNothingBehindThem) {
  Completion failed, next, sent;
  fail_a_receive(failed);
  const std::string other = "another";
  std::string got(other.size(), '-');
  ASSERT_TRUE(receiver_.recv(0, 8, got.data(), got.size(), next).ok());
  ASSERT_TRUE(sender_.send(1, 8, other.data(), other.size(), sent).ok());
  for (int i = 0; i < 1000 && next.state == State::pending; ++i) sender_.progress(), receiver_.progress();
  EXPECT_EQ(sent_.state, State::done);
  EXPECT_EQ(next.state, State::done);
  EXPECT_EQ(got, other);
  EXPECT_EQ(short_, std::string(10, '-'));
}

}  // namespace
}  // namespace epccl::transports
