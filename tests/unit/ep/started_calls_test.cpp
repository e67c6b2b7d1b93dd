// Calls that a handle keeps until they are over; here the test plays the executor.
#include "ep/calls/started_calls.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace epccl::ep {
namespace {

using plan::Kind;
using runtime::CallProgress;
using State = StartedCalls::State;

plan::Step step(Kind kind, uint8_t stage, uint64_t bytes, uint32_t rows = 1) {
  plan::Step made;
  made.kind = kind;
  made.stage = stage;
  made.bytes = bytes;
  made.rows = rows;
  return made;
}

runtime::CompiledPlan plan_of(const std::vector<plan::Step>& steps) {
  runtime::CompiledPlan plan;
  for (const plan::Step& each : steps) {
    plan.steps.emplace_back();
    plan.steps.back().step = each;
  }
  return plan;
}

const std::vector<plan::Step> two_stages{
    step(Kind::post, 0, 0),         step(Kind::move_rows, 0, 8, 3),  // packed
    step(Kind::send, 1, 24),        step(Kind::recv, 1, 16),
    step(Kind::move_rows, 1, 8, 2),  // its own, under the network
    step(Kind::move_rows, 2, 8, 4), step(Kind::wait, 2, 0)};

void expect_bytes(const CallProgress::Bytes& bytes, uint64_t done, uint64_t total) {
  EXPECT_EQ(bytes.done, done);
  EXPECT_EQ(bytes.total, total);
}

TEST(CallProgress, CountsMessagesAndRowsInTheirPlaces) {
  CallProgress call;
  EXPECT_EQ(call.state(), State::queued);
  call.begin(plan_of(two_stages));
  EXPECT_EQ(call.state(), State::network);
  expect_bytes(call.network(), 0, 24 + 16);
  expect_bytes(call.node(), 0, 16 + 32);
  for (size_t i = 0; i < 3; ++i) call.completed(two_stages[i]);
  expect_bytes(call.network(), 24, 40);
  expect_bytes(call.node(), 0, 48);
  for (size_t i = 3; i < two_stages.size(); ++i) call.completed(two_stages[i]);
  expect_bytes(call.network(), 40, 40);
  expect_bytes(call.node(), 48, 48);
}

TEST(CallProgress, IsPastTheNetworkWhenAllIsThroughAndDrained) {
  CallProgress call;
  call.begin(plan_of(two_stages));
  call.completed(two_stages[2]);
  call.drained();
  EXPECT_EQ(call.state(), State::network);  // a message is still to come
  call.completed(two_stages[3]);
  EXPECT_EQ(call.state(), State::network);  // not drained
  call.drained();
  EXPECT_EQ(call.state(), State::node);
  call.finish({});
  EXPECT_EQ(call.state(), State::over);
}

TEST(CallProgress, WithoutMessagesIsPastTheNetworkAtOnce) {
  CallProgress call;
  call.begin(plan_of({step(Kind::move_rows, 1, 8, 2)}));
  EXPECT_EQ(call.state(), State::node);
}

/// Runs a call as the executor does.
device::HostStream::Work run(const StartedCalls::Call& call, Status result,
                             const std::atomic<bool>& may_run) {
  return [call, result, &may_run] {
    may_run.wait(false);
    call->begin(plan_of(two_stages));
    for (const plan::Step& each : two_stages) {
      call->completed(each);
      call->drained();
    }
    call->finish(result);
    return result;
  };
}

TEST(StartedCalls, AreCountedAndWaitedForFromAnyThread) {
  constexpr uint64_t many = 50;
  StartedCalls calls;
  std::atomic<bool> may_run = false;
  device::HostStream stream, waiting;
  for (uint64_t i = 0; i < many; ++i) stream.enqueue(run(calls.add(stream), {}, may_run));
  EXPECT_EQ(calls.counts().started, many);
  EXPECT_EQ(calls.counts().past_network, 0U);
  expect_bytes(calls.counts().network, 0, 0);
  calls.hold_back(&waiting, State::over);
  std::vector<std::thread> threads;
  for (const State state : {State::node, State::over})
    threads.emplace_back([&, state] {
      EXPECT_TRUE(calls.wait(state).ok());
      EXPECT_EQ(state == State::over ? calls.counts().over : calls.counts().past_network, many);
    });
  threads.emplace_back([&] {
    for (uint64_t over = 0; over < many;) {
      const StartedCalls::Counts counts = calls.counts();
      EXPECT_LE(counts.over, counts.past_network);
      EXPECT_LE(counts.past_network, counts.started);
      EXPECT_GE(counts.over, over);
      over = counts.over;
      std::this_thread::yield();
    }
  });
  EXPECT_FALSE(waiting.idle());
  may_run = true;
  may_run.notify_all();
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(waiting.synchronize().ok());
}

TEST(StartedCalls, KeepTheFirstErrorUntilTheEndIsWaitedFor) {
  StartedCalls calls;
  const std::atomic<bool> may_run = true;
  device::HostStream stream;
  stream.enqueue(run(calls.add(stream), {}, may_run));
  stream.enqueue(run(calls.add(stream), {Code::remote_error, "rank 1 died"}, may_run));
  stream.enqueue(run(calls.add(stream), {Code::remote_error, "as before"}, may_run));
  EXPECT_TRUE(stream.synchronize().code() == Code::remote_error);
  EXPECT_EQ(calls.wait(State::node).message(), "rank 1 died");
  EXPECT_EQ(calls.wait(State::over).message(), "rank 1 died");
  EXPECT_TRUE(calls.wait(State::over).ok());
}

// A call lets the next one begin before it is told that it is over itself.
TEST(StartedCalls, OfTwoThatRunTheFirstsBytesAreTold) {
  StartedCalls calls;
  device::HostStream stream;
  const auto first = calls.add(stream), second = calls.add(stream);
  const runtime::CompiledPlan plan = plan_of(two_stages);
  first->begin(plan);
  second->begin(plan);
  second->completed(two_stages[2]);
  const StartedCalls::Counts counts = calls.counts();
  expect_bytes(counts.network, 0, 40);
  expect_bytes(counts.node, 0, 48);
  first->finish({});
  second->finish({});
}

TEST(StartedCalls, ThatNeverBeganReleaseWhoWaits) {
  StartedCalls calls;
  device::HostStream stream;
  const StartedCalls::Call call = calls.add(stream);
  std::thread waits([&] { EXPECT_EQ(calls.wait(State::node).message(), "broken before"); });
  call->finish({Code::remote_error, "broken before"});
  waits.join();
}

TEST(StartedCalls, AnUpdateIsWaitedForAndItsErrorToldButItIsNoneOfTheCalls) {
  device::HostStream stream;
  StartedCalls calls;
  const auto update = calls.add(stream, StartedCalls::Counted::no);
  std::atomic<bool> through = false;
  std::thread waiter([&] {
    EXPECT_EQ(calls.wait(State::over).message(), "an entry names no expert");
    through = true;
  });
  EXPECT_FALSE(through);
  EXPECT_EQ(calls.counts().started, 0U);
  update->finish({Code::invalid_argument, "an entry names no expert"});
  waiter.join();
  EXPECT_EQ(calls.counts().over, 0U);
  EXPECT_TRUE(calls.wait(State::over).ok()) << "it was told";
}

}  // namespace
}  // namespace epccl::ep
