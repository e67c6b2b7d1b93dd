// A rank lets all queues of its node through: others then copy what nobody has sent, and their queues say that they are through.
#include <gmock/gmock.h>

#include <thread>

#include "fake_driver.hpp"
#include "rank_with_gpu.hpp"
#include "runtime/executor/node_words.hpp"
#include "runtime/executor/queue_executor.hpp"

namespace epccl::runtime {
namespace {

using device::test::gpu;
using ::testing::HasSubstr;
using transports::done_counter;

constexpr int slot = 3;
constexpr uint64_t bytes = 64;

/// Waits for rank 1, then copies.
QueueProgram wait_and_copy() {
  QueueProgram program;
  plan::Step wait, copy;
  wait.kind = plan::Kind::wait;
  wait.peer = 1;
  wait.slot = slot;
  wait.value = 1;
  copy.source = {0, plan::Buffer::input, 0};
  copy.destination = {0, plan::Buffer::output, 0};
  copy.bytes = bytes;
  program.steps = {wait, copy};
  using Operation = QueueOperation::Kind;
  program.operations = {{Operation::wait, 0, 0}, {Operation::step, 0, 1}};
  program.of_queue = {{0, 1}};
  program.queues = {plan::Lane::pull};
  return program;
}

using GivenUp = RankWithGpu;
using KernelsGivenUp = RankWithKernels;

TEST_F(GivenUp, IsAFailureAlsoWhereTheQueuesHaveGoneOnAndSaidThatTheyAreThrough) {
  const device::test::GpuMemory input(bytes), output(bytes);
  const QueueProgram program = wait_and_copy();
  QueueCall call{1, "a call", {{input.data(), output.data(), nullptr}, {}}, nullptr, {}};
  Waiter waiter(node_[0], nullptr, monitor_, {});
  QueueExecutor queues(gpu(), cluster_, node_[0], monitor_, {});
  node_[1].segment().queued(1, slot).store(counter_value(1, 1));
  fake_cuda_set("copy_pause",
                100'000);  // so that all counters are raised before this rank's queue sets its own
  EXPECT_OK(queues.submit(program, call, waiter));
  release_words(node_[1]);
  while (node_[0].done(0) != call.sequence) std::this_thread::yield();
  fake_cuda_set("copy_pause", 0);
  EXPECT_THAT(queues.finish(waiter).message(), HasSubstr("a rank of this node gave up"));
}

// As if the queues of both had set back their counters before either looks.
TEST_F(KernelsGivenUp, AreAFailureAlsoWhereBothRanksQueuesHaveSaidThatTheyAreThrough) {
  const uint64_t sequence = 1;
  node_[1].post(transports::meeting_counter, counter_value(sequence, 0));
  node_[1].segment().queued(1, done_counter).store(sequence);
  const auto give_up = [&](device::Queue& queue, std::span<const PeerRows>) {
    release_words(node_[1]);
    Status status = queue.synchronize();
    for (int local = 0; local < node_.ranks(); ++local) node_[local].set_done(sequence);
    return status;
  };
  const auto nothing = [](device::Queue&, std::span<const PeerRows>) { return Status(); };
  EXPECT_THAT(calls_.run({}, "a call", nullptr, nothing, give_up).message(),
              HasSubstr("a rank of this node gave up"));
}

}  // namespace
}  // namespace epccl::runtime
