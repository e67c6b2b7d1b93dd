// A plan's copies as a queue gets them: those of one list may run in any order.
#include "runtime/executor/queue_program.hpp"

#include <gmock/gmock.h>

#include <array>
#include <vector>

#include "device/host/host_device.hpp"
#include "runtime/executor/queue_feed.hpp"

namespace epccl::runtime {
namespace {

using testing::ElementsAre;

/// Keeps how many copies each list has that it gets.
class CountingQueue : public device::Queue {
 public:
  Status copy(std::span<const device::CopyWork> copies) override {
    lists.push_back(copies.size());
    return {};
  }
  Status reduce(const device::ReduceWork&) override { return {}; }
  Status post(device::SignalWord&, uint64_t) override { return {}; }
  Status wait(const device::SignalWord&, uint64_t) override { return {}; }
  Status record(device::QueueEvent&) override { return {}; }
  Status wait(const device::QueueEvent&) override { return {}; }
  void set_blocks(int) override {}
  Status synchronize() override { return {}; }
  Result<bool> idle() override { return true; }
  Status failure() const override { return {}; }

  std::vector<size_t> lists;
};

/// The lists of a plan of rank 0, alone on its node, whose copies all are for one queue.
std::vector<size_t> lists_of(const plan::RankPlan& plan, plan::Makers makers) {
  const topology::Cluster cluster = topology::Cluster::uniform(1, 1);
  auto program = make_queue_program(plan, cluster, 1, plan::Signals::spread, makers);
  EXPECT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->queues.size(), 1U);
  std::vector<std::byte> input(64), output(64);
  QueueCall call;
  call.buffers = {{input.data(), output.data(), nullptr}};
  CountingQueue queue;
  QueueFeed feed(device::host_device(), cluster, {});
  feed.begin(*program, call, {&queue});
  for (const QueueOperation& operation : program->operations) {
    const Status status = feed.copy(0, program->steps[operation.index], operation.begins_list);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(feed.flush_all().ok());
  return queue.lists;
}

TEST(QueueProgram, ACopyIsInAnotherListThanWhatItDependsOn) {
  for (const plan::Makers makers : {plan::Makers::engines, plan::Makers::cores}) {
    plan::Builder builder(0);
    const std::array first{builder.copy(0, builder.input(0), builder.output(0), 8)};
    const std::array second{builder.copy(0, builder.output(0), builder.output(8), 8, first)};
    builder.copy(0, builder.output(0), builder.output(16), 8, first);
    builder.copy(0, builder.output(8), builder.output(24), 8, second);
    EXPECT_THAT(lists_of(std::move(builder).take(), makers), ElementsAre(1, 2, 1));
  }
}

TEST(QueueProgram, CopiesThatDependOnNothingAreOneList) {
  for (const plan::Makers makers : {plan::Makers::engines, plan::Makers::cores}) {
    plan::Builder builder(0);
    for (uint64_t at = 0; at < 40; at += 8) builder.copy(0, builder.input(at), builder.output(32 - at), 8);
    EXPECT_THAT(lists_of(std::move(builder).take(), makers), ElementsAre(5));
  }
}

}  // namespace
}  // namespace epccl::runtime
