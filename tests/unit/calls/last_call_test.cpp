// Numbers of calls, and values of plans, are as many as the node's counters have room for.
#include <gmock/gmock.h>

#include <array>
#include <string>
#include <thread>
#include <utility>

#include "../shm/node.hpp"
#include "control_line.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/queues/device_program.hpp"

namespace epccl::runtime {
namespace {

using plan::Builder;
using ::testing::HasSubstr;

constexpr int slot = 3;
constexpr uint32_t largest_value = (1U << value_bits) - 1;

/// Each of two ranks says `value`, and hears it of the other.
plan::RankPlan say_and_hear(int rank, uint32_t value) {
  Builder builder(rank);
  builder.post(0, slot, value);
  builder.wait(0, 1 - rank, slot, value);
  return std::move(builder).take();
}

class LastCall : public testing::Test {
 protected:
  struct Rank {
    Rank(const topology::Cluster& cluster, int rank, transports::NodeMemory& node)
        : executor(cluster, rank, node, nullptr, monitor, {}, {}) {}
    ControlLine line;
    FailureMonitor monitor{line};
    Executor executor;
  };

  /// The call before that is over.
  void come_to(uint64_t sequence) {
    for (int rank = 0; rank < 2; ++rank) node_[rank].set_done(sequence - 1);
  }
  std::array<Status, 2> run(uint64_t sequence, uint32_t value) {
    std::array<Status, 2> ended;
    std::array<std::thread, 2> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks[static_cast<size_t>(rank)] = std::thread([&, rank] {
        const CompiledPlan plan = compile(say_and_hear(rank, value), cluster_);
        Call call;
        call.sequence = sequence;
        call.text = "a call";
        ended[static_cast<size_t>(rank)] = ranks_[static_cast<size_t>(rank)].executor.run(plan, call);
      });
    for (std::thread& rank : ranks) rank.join();
    return ended;
  }

  const topology::Cluster cluster_ = topology::Cluster::uniform(1, 2);
  transports::Node node_{2};
  std::array<Rank, 2> ranks_{Rank{cluster_, 0, node_[0]}, Rank{cluster_, 1, node_[1]}};
};

TEST_F(LastCall, IsMadeAsAnyOther) {
  come_to(last_call);
  for (const Status& ended : run(last_call, largest_value)) EXPECT_TRUE(ended.ok()) << ended.message();
}

TEST_F(LastCall, IsFollowedByNoneOnAnyRank) {
  come_to(last_call);
  for (const Status& ended : run(last_call, 1)) ASSERT_TRUE(ended.ok()) << ended.message();
  for (const Status& ended : run(last_call + 1, 1)) {
    EXPECT_EQ(ended.code(), Code::invalid_usage);
    EXPECT_THAT(ended.message(), HasSubstr("call 274877906944: the 274877906943 calls"));
  }
}

TEST(LargestValue, IsWhatProgramsMayHave) {
  const topology::Cluster cluster = topology::Cluster::uniform(1, 2);
  const auto queued = [&](const plan::RankPlan& plan) {
    return make_queue_program(plan, cluster, 2, plan::Signals::spread, plan::Makers::engines).status();
  };
  const auto on_device = [&](const plan::RankPlan& plan) {
    return make_device_program(plan, cluster, 2, 1 << 20).status();
  };
  const plan::RankPlan fits = say_and_hear(0, largest_value),
                       is_too_long = say_and_hear(0, largest_value + 1);
  for (const Status& status : {check_values(fits), queued(fits), on_device(fits)})
    EXPECT_TRUE(status.ok()) << status.message();
  for (const Status& status : {check_values(is_too_long), queued(is_too_long), on_device(is_too_long)}) {
    EXPECT_EQ(status.code(), Code::invalid_usage);
    EXPECT_THAT(status.message(), HasSubstr("more than 16777215 rounds"));
  }
}

}  // namespace
}  // namespace epccl::runtime
