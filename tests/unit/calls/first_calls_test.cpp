#include "runtime/comm/first_calls.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace epccl::runtime {
namespace {

TEST(FirstCalls, AreSoMany) {
  FirstCalls calls({.calls = 2});
  EXPECT_TRUE(calls.begin(false));
  EXPECT_TRUE(calls.begin(false));
  EXPECT_FALSE(calls.begin(false));
  EXPECT_TRUE(calls.begin(true)) << "on the NULL stream all are waited for";
}

TEST(FirstCalls, AreNoneWhereNoneAreWished) {
  FirstCalls calls({.calls = 0});
  EXPECT_FALSE(calls.begin(false));
  EXPECT_FALSE(calls.begin(true));
}

TEST(FirstCalls, AreWaitedForUntilNobodyHoldsThem) {
  FirstCalls calls({.calls = 1});
  auto call = std::make_shared<int>(0);
  const std::weak_ptr<const void> waited_for = call;
  std::thread ends([call = std::move(call)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    call.reset();
  });
  EXPECT_TRUE(calls.wait_for(waited_for));
  EXPECT_TRUE(waited_for.expired());
  ends.join();
}

TEST(FirstCalls, AreNoMoreAfterSomeInARowInVain) {
  FirstCalls calls({.calls = 100, .patience_seconds = 0.001, .most_in_vain = 2});
  const auto stays = std::make_shared<int>(0);
  EXPECT_FALSE(calls.wait_for(stays));
  EXPECT_TRUE(calls.wait_for({}));
  EXPECT_FALSE(calls.wait_for(stays));
  EXPECT_TRUE(calls.begin(false));
  EXPECT_FALSE(calls.wait_for(stays));
  EXPECT_FALSE(calls.begin(false));
  EXPECT_TRUE(calls.begin(true));
}

}  // namespace
}  // namespace epccl::runtime
