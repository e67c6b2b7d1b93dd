// A rank lets all queues of its node through: others then copy what nobody has sent, and their queues say that they are through.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "../device_messages/wire.hpp"
#include "fake_driver.hpp"
#include "rank_with_gpu.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/executor/node_words.hpp"
#include "runtime/queues/device_executor.hpp"
#include "runtime/queues/queue_executor.hpp"
#include "runtime/streams/turn_words.hpp"

namespace epccl::runtime {
namespace {

using device::test::gpu;
using ::testing::HasSubstr;
using transports::done_counter;

constexpr int slot = 3;
constexpr uint64_t bytes = 64, stage_bytes = 64 << 10;

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
  program.ends = {0};
  program.queues = {plan::Lane::pull};
  return program;
}

class GivenUp : public RankWithGpu {
 protected:
  const device::test::GpuMemory input_{bytes}, output_{bytes};
  const QueueProgram program_ = wait_and_copy();
  QueueCall call_{1, "a call", {{input_.data(), output_.data(), nullptr}, {}}, nullptr, {}};
  Waiter waiter_{0, node_[0], nullptr, monitor_, {}};
  QueueExecutor queues_{gpu(), cluster_, node_[0], monitor_, {}, [](const Status&) {}};
};
using KernelsGivenUp = RankWithKernels;

/// Rank 1's queues are in the call, and run out a moment after rank 0 has given up.
class PeerInQueues {
 public:
  PeerInQueues(transports::Node& node, uint64_t sequence) : node_(node) {
    EXPECT_TRUE(node[1].begin_use(sequence));
    thread_ = std::thread([this] {
      while (!node_[1].gave_up()) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      is_out_ = true;
      node_[1].end_use();
    });
  }
  PeerInQueues(const PeerInQueues&) = delete;
  PeerInQueues& operator=(const PeerInQueues&) = delete;
  ~PeerInQueues() { thread_.join(); }
  bool is_out() const { return is_out_; }

 private:
  transports::Node& node_;
  std::atomic<bool> is_out_{false};
  std::thread thread_;
};

/// Hears of a failure as the communicator does, which tells it on.
class Listener {
 public:
  Listener(FailureMonitor& monitor, const transports::NodeMemory& node) {
    monitor.listened_to_by([this, &node](const Status& failure) {
      heard_ = failure.message();
      EXPECT_FALSE(node.gave_up()) << "before it is known why";
      return Status(failure).with_context("as it is told");
    });
  }
  const std::string& heard() const { return heard_; }

 private:
  std::string heard_;
};

TEST_F(GivenUp, IsKnownWhyBeforeAnythingGoesOn) {
  node_[1].segment().queued(1, slot).store(counter_value(1, 1));
  EXPECT_OK(queues_.submit(program_, call_, waiter_));
  monitor_.abort("aborted");
  const Listener listener(monitor_, node_[0]);
  EXPECT_THAT(queues_.finish(waiter_).message(), HasSubstr("as it is told: aborted"));
  EXPECT_EQ(listener.heard(), "aborted");
}

TEST_F(GivenUp, IsKnownWhyBeforeAnythingGoesOnOfACallThatThisRankCannotSubmit) {
  monitor_.abort("aborted");
  const Listener listener(monitor_, node_[0]);
  EXPECT_THAT(queues_.submit(program_, call_, waiter_).message(), HasSubstr("as it is told: aborted"));
  EXPECT_EQ(listener.heard(), "aborted");
}

TEST_F(GivenUp, ByAPeerIsForItsReason) {
  node_[1].say_why("rank 1 failed: refused");
  release_words(node_[1]);
  EXPECT_EQ(queues_.submit(program_, call_, waiter_).message(), "rank 1 failed: refused");
}

TEST_F(GivenUp, IsToldWhenPeersQueuesHaveRunOutOfTheCall) {
  node_[1].segment().queued(1, slot).store(counter_value(1, 1));
  EXPECT_OK(queues_.submit(program_, call_, waiter_));
  monitor_.abort("aborted");
  const PeerInQueues peer(node_, call_.sequence);
  EXPECT_THAT(queues_.finish(waiter_).message(), HasSubstr("aborted"));
  EXPECT_TRUE(peer.is_out());
}

// Before it has made a queue, too.
TEST_F(GivenUp, IsToldWhenPeersQueuesHaveRunOutOfACallThatThisRankCannotSubmit) {
  monitor_.abort("aborted");
  const PeerInQueues peer(node_, call_.sequence);
  EXPECT_THAT(queues_.submit(program_, call_, waiter_).message(), HasSubstr("aborted"));
  EXPECT_TRUE(peer.is_out());
}

TEST_F(GivenUp, IsToldAfterAWhileWherePeersQueuesDoNotRunOut) {
  WaitPolicy policy;
  policy.timeout_seconds = 1000;
  policy.most_in_driver = 0.1;
  Waiter waiter(0, node_[0], nullptr, monitor_, policy);
  EXPECT_TRUE(node_[1].begin_use(call_.sequence));
  monitor_.abort("aborted");
  EXPECT_THAT(queues_.submit(program_, call_, waiter).message(), HasSubstr("aborted"));
  EXPECT_EQ(node_[0].peer_that_uses(call_.sequence), 1);
}

// Its buffers may be the user's again.
TEST_F(GivenUp, ByAPeerACallQueuesNothing) {
  release_words(node_[1]);
  fake_cuda_forget_calls();
  EXPECT_THAT(queues_.submit(program_, call_, waiter_).message(), HasSubstr("a rank of this node gave up"));
  EXPECT_EQ(fake_cuda_calls("copies inside"), 0);
}

// As if all counters had been raised before this rank's queue sets its own.
TEST_F(GivenUp, IsAFailureAlsoWhereTheQueuesHaveGoneOnAndSaidThatTheyAreThrough) {
  node_[1].segment().queued(1, slot).store(counter_value(1, 1));
  EXPECT_OK(queues_.submit(program_, call_, waiter_));
  node_[1].post(slot, device::released);
  while (node_[0].done(0) != call_.sequence) std::this_thread::yield();
  release_words(node_[1]);
  node_[0].set_done(call_.sequence);
  EXPECT_THAT(queues_.finish(waiter_).message(), HasSubstr("a rank of this node gave up"));
}

/// A call that waits for a stream that has not come, which is held.
class QueuedBehindAStream : public GivenUp {
 protected:
  void SetUp() override {
    node_[1].segment().queued(1, slot).store(counter_value(1, 1));
    call_.behind = &behind_;
    EXPECT_OK(queues_.submit(program_, call_, waiter_));
    EXPECT_TRUE(is_queued_);
  }
  bool is_released() const { return word_.word->load() >= word_.value; }
  bool is_in_use() { return node_[1].peer_that_uses(call_.sequence) == 0; }

  bool was_let_go_ = false, is_queued_ = false;
  const TurnWords::Word word_ = device::test::take(TurnWords::of(gpu()).take());
  const QueuedBehind behind_{{word_.come, word_.value},
                             nullptr,
                             {word_.word, word_.value},
                             [this](device::WordValue) { is_queued_ = true; },
                             [this] {
                               was_let_go_ = true;
                               word_.come->store(word_.value);
                             }};
};

TEST_F(QueuedBehindAStream, ACallLetsItGoWhenAllIsThrough) {
  EXPECT_TRUE(is_in_use());
  EXPECT_FALSE(is_released());
  word_.come->store(word_.value);
  node_[1].post(slot, counter_value(1, 1));
  EXPECT_OK(queues_.finish(waiter_));
  EXPECT_TRUE(is_released());
  EXPECT_FALSE(was_let_go_);
  EXPECT_FALSE(is_in_use());
}

TEST_F(QueuedBehindAStream, ACallThatFailsWaitsForItNoLonger) {
  monitor_.abort("aborted");
  EXPECT_THAT(queues_.finish(waiter_).message(), HasSubstr("aborted"));
  EXPECT_TRUE(was_let_go_);
  EXPECT_FALSE(is_in_use());
}

TEST_F(KernelsGivenUp, AreToldWhenPeersQueuesHaveRunOutOfTheCall) {
  const uint64_t sequence = 1;
  node_[1].post(transports::meeting_counter, counter_value(sequence, 0));
  const PeerInQueues peer(node_, sequence);
  const auto fail = [](device::Queue&, std::span<const PeerRows>) {
    return Status(Code::device_error, "refused");
  };
  EXPECT_THAT(calls_.run({}, "a call", nullptr, {nullptr, fail, nullptr}).message(), HasSubstr("refused"));
  EXPECT_TRUE(peer.is_out());
}

TEST_F(KernelsGivenUp, AreKnownWhyBeforeAnythingGoesOn) {
  node_[1].post(transports::meeting_counter, counter_value(1, 0));
  const Listener listener(monitor_, node_[0]);
  const auto fail = [](device::Queue&, std::span<const PeerRows>) {
    return Status(Code::device_error, "refused");
  };
  EXPECT_THAT(calls_.run({}, "a call", nullptr, {nullptr, fail, nullptr}).message(),
              HasSubstr("as it is told: refused"));
  EXPECT_EQ(listener.heard(), "refused");
}

TEST_F(KernelsGivenUp, LetGoOfAStreamOnlyWhileItsCallLives) {
  node_[1].post(transports::meeting_counter, counter_value(1, 0));
  bool was_let_go = false;
  {
    QueuedBehind behind;
    behind.let_go = [&was_let_go] { was_let_go = true; };
    const auto begun = calls_.begin({}, &behind);
  }
  const auto fail = [](device::Queue&, std::span<const PeerRows>) {
    return Status(Code::device_error, "refused");
  };
  EXPECT_THAT(calls_.run({}, "a call", nullptr, {nullptr, fail, nullptr}).message(), HasSubstr("refused"));
  EXPECT_FALSE(was_let_go);
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
  EXPECT_THAT(calls_.run({}, "a call", nullptr, {nullptr, nothing, give_up}).message(),
              HasSubstr("a rank of this node gave up"));
}

/// By this rank's thread, of the host's memory.
class HostGivenUp : public RankWithGpu {
 protected:
  Executor executor_{cluster_, 0, node_[0], nullptr, monitor_, {}, {}};
};

// The peer's buffers may be the user's again.
TEST_F(HostGivenUp, ByAPeerACallMovesNothing) {
  plan::Builder builder(0);
  builder.copy(0, builder.input(0), builder.output(0), bytes);
  const CompiledPlan plan = compile(std::move(builder).take(), cluster_);
  const std::vector<char> input(bytes, 1);
  std::vector<char> output(bytes, 0);
  Call call;
  call.sequence = 1;
  call.input = input.data();
  call.output = output.data();
  call.text = "a call";
  node_[1].say_why("rank 1 failed: refused");
  node_[1].say_gave_up();
  EXPECT_THAT(executor_.run(plan, call).message(), HasSubstr("rank 1 failed: refused"));
  EXPECT_EQ(output, std::vector<char>(bytes, 0));
  EXPECT_EQ(node_[1].peer_that_uses(1), -1);
}

/// Of two nodes, where this rank's thread drives the queues; it copies as soon as rank 1 says so.
class GivenUpAcrossNodes : public RankWithGpu {
 protected:
  GivenUpAcrossNodes() {
    plan::Builder builder(0);
    const uint32_t wait = builder.wait(0, 1, slot, 1);
    builder.copy(0, builder.input(0), builder.output(0), bytes, std::array{wait});
    program_ = device::test::take(make_device_program(std::move(builder).take(), nodes_, 1, stage_bytes));
    EXPECT_OK(executor_.prepare(1));
  }
  Status run() { return executor_.run(program_, call_, waiter_); }

  const topology::Cluster nodes_ = topology::Cluster::from_sizes({2, 1});
  Wire wire_{1};
  WireEnd network_{wire_, 0, false};
  const device::test::GpuMemory input_{bytes}, output_{bytes};
  const QueueCall call_{1, "a call", {{input_.data(), output_.data(), nullptr}, {}}, nullptr, {}};
  Waiter waiter_{0, node_[0], &network_, monitor_, {}};
  DeviceExecutor executor_{gpu(), nodes_, 0, node_[0], network_, monitor_, stage_bytes};
  DeviceProgram program_;
};

TEST_F(GivenUpAcrossNodes, IsToldWhenPeersQueuesHaveRunOutOfTheCall) {
  monitor_.abort("aborted");
  const PeerInQueues peer(node_, call_.sequence);
  EXPECT_THAT(run().message(), HasSubstr("aborted"));
  EXPECT_TRUE(peer.is_out());
}

TEST_F(GivenUpAcrossNodes, IsKnownWhyBeforeAnythingGoesOn) {
  monitor_.abort("aborted");
  const Listener listener(monitor_, node_[0]);
  EXPECT_THAT(run().message(), HasSubstr("as it is told: aborted"));
  EXPECT_EQ(listener.heard(), "aborted");
}

TEST_F(GivenUpAcrossNodes, ByAPeerACallQueuesNothing) {
  node_[1].post(slot, counter_value(call_.sequence, 1));
  node_[1].say_gave_up();
  fake_cuda_forget_calls();
  EXPECT_THAT(run().message(), HasSubstr("a rank of this node gave up"));
  EXPECT_EQ(fake_cuda_calls("copies inside"), 0);
}

// A rank that gives up waits for those that are, so it must not be said of those that are not.
TEST_F(GivenUpAcrossNodes, FindsNobodyInTheQueuesOfACallThatIsOver) {
  node_[1].post(slot, counter_value(call_.sequence, 1));
  EXPECT_OK(run());
  EXPECT_EQ(node_[1].peer_that_uses(call_.sequence), -1);
}

class KernelsGivenUpAcrossNodes : public RankWithGpu {
 protected:
  KernelsGivenUpAcrossNodes() {
    EXPECT_OK(engines_.prepare());
    EXPECT_OK(calls_.prepare());
  }

  const topology::Cluster nodes_ = topology::Cluster::from_sizes({2, 1});
  Wire wire_{1};
  WireEnd network_{wire_, 0, false};
  Executor executor_{nodes_, 0, node_[0], &network_, monitor_, {}, {}};
  CopyEngines engines_{
      gpu(), nodes_, 0, node_[0], monitor_, executor_, {EngineUse::automatic, 0, stage_bytes, false}};
  KernelCalls calls_{gpu(), nodes_, 0, node_[0], monitor_, executor_, engines_};
};

TEST_F(KernelsGivenUpAcrossNodes, AreToldWhenPeersQueuesHaveRunOutOfACallWhosePeersMemoryCannotBeMapped) {
  const uint64_t sequence = 1;
  transports::BufferRef& gone = node_[1].my_call(sequence).outputs[0];
  gone.bytes = bytes;
  gone.has_memory = 1;
  node_[1].post(transports::meeting_counter, counter_value(sequence, 0));
  const PeerInQueues peer(node_, sequence);
  const DeviceProgram program;
  const RowBuffers rows;
  EXPECT_FALSE(calls_.run_plan({program, {}, rows, rows}, "a call", nullptr).ok());
  EXPECT_TRUE(peer.is_out());
}

}  // namespace
}  // namespace epccl::runtime
