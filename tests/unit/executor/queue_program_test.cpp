// A plan's copies as a queue gets them: those of one list may run in any order.
#include "runtime/queues/queue_program.hpp"

#include <gmock/gmock.h>

#include <array>
#include <vector>

#include "device/host/host_device.hpp"
#include "runtime/queues/queue_feed.hpp"

namespace epccl::runtime {
namespace {

using testing::ElementsAre;

/// Keeps the lists of copies that it gets.
class RecordingQueue : public device::Queue {
 public:
  Status copy(std::span<const device::CopyWork> copies) override {
    lists.emplace_back(copies.begin(), copies.end());
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

  std::vector<std::vector<device::CopyWork>> lists;
};

/// A copy as a queue gets it: from where in the input, to where in the output.
struct Given {
  ptrdiff_t from, to;
  uint64_t bytes;
  bool operator==(const Given&) const = default;
};

/// The lists of a plan of rank 0, alone on its node, whose copies all are for one queue.
std::vector<std::vector<Given>> given_of(const plan::RankPlan& plan, plan::Makers makers,
                                         const QueueFeed::Limits& limits) {
  const topology::Cluster cluster = topology::Cluster::uniform(1, 1);
  auto program = make_queue_program(plan, cluster, 1, plan::Signals::spread, makers);
  EXPECT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->queues.size(), 1U);
  std::vector<std::byte> memory(128);
  std::byte *const input = memory.data(), *const output = input + 64;
  QueueCall call;
  call.buffers = {{input, output, nullptr}};
  RecordingQueue queue;
  QueueFeed feed(device::host_device(), cluster, limits);
  feed.begin(*program, call, {&queue});
  for (const QueueOperation& operation : program->operations) {
    const Status status = feed.copy(0, program->steps[operation.index], operation.begins_list);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(feed.flush_all().ok());
  std::vector<std::vector<Given>> lists;
  for (const auto& list : queue.lists) {
    lists.emplace_back();
    for (const device::CopyWork& copy : list)
      lists.back().push_back({copy.source - input, copy.destination - output, copy.bytes});
  }
  return lists;
}

std::vector<size_t> lists_of(const plan::RankPlan& plan, plan::Makers makers,
                             const QueueFeed::Limits& limits = {}) {
  std::vector<size_t> sizes;
  for (const auto& list : given_of(plan, makers, limits)) sizes.push_back(list.size());
  return sizes;
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

/// Backwards: copies that go on where others end become one.
plan::RankPlan independent_copies(uint64_t count) {
  plan::Builder builder(0);
  for (uint64_t at = 0; at < count; ++at) builder.copy(0, builder.input(at), builder.output(count - at), 1);
  return std::move(builder).take();
}

TEST(QueueLimits, NoListHasMoreCopiesThanEnginesGetAtOnce) {
  const QueueFeed::Limits limits{.copies = 3};
  EXPECT_THAT(lists_of(independent_copies(7), plan::Makers::engines, limits), ElementsAre(3, 3, 1));
  EXPECT_THAT(lists_of(independent_copies(6), plan::Makers::engines, limits), ElementsAre(3, 3));
  EXPECT_THAT(lists_of(independent_copies(9), plan::Makers::engines), ElementsAre(8, 1));
}

// A list is a kernel there.
TEST(QueueLimits, CoresGetAllCopiesAtOnce) {
  EXPECT_THAT(lists_of(independent_copies(7), plan::Makers::cores, {.copies = 3}), ElementsAre(7));
}

TEST(QueueLimits, PiecesOfALongCopyAreNoMoreAtOnceThanOtherCopies) {
  plan::Builder builder(0);
  builder.copy(0, builder.input(0), builder.output(0), 40);
  EXPECT_THAT(lists_of(std::move(builder).take(), plan::Makers::engines, {.copy_bytes = 8, .copies = 3}),
              ElementsAre(3, 2));
}

TEST(QueueLimits, ALongCopyIsCutIntoPiecesThatAreTheWhole) {
  for (const plan::Makers makers : {plan::Makers::engines, plan::Makers::cores}) {
    const auto given = [makers](uint64_t bytes) {
      plan::Builder builder(0);
      builder.copy(0, builder.input(5), builder.output(11), bytes);
      return given_of(std::move(builder).take(), makers, {.copy_bytes = 16});
    };
    EXPECT_THAT(given(16), ElementsAre(ElementsAre(Given{5, 11, 16})));
    EXPECT_THAT(given(17), ElementsAre(ElementsAre(Given{5, 11, 16}, Given{21, 27, 1})));
    EXPECT_THAT(given(48), ElementsAre(ElementsAre(Given{5, 11, 16}, Given{21, 27, 16}, Given{37, 43, 16})));
  }
}

/// Of rank 0 of four on a node, for two queues of a purpose.
QueueProgram program_of(plan::Builder builder, plan::Signals signals = plan::Signals::spread) {
  auto program = make_queue_program(std::move(builder).take(), topology::Cluster::uniform(1, 4), 2, signals,
                                    plan::Makers::engines);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *std::move(program);
}

using Operation = QueueOperation::Kind;

size_t count(const QueueProgram& program, Operation kind) {
  return static_cast<size_t>(std::ranges::count(program.operations, kind, &QueueOperation::kind));
}

/// Takes a block from each peer as soon as it is in the call, says so, and waits for those who take its own.
plan::Builder takes_from_all(bool at_entry) {
  constexpr uint16_t here = 0, taken = 1;
  plan::Builder builder(0);
  if (at_entry)
    builder.enter(here);
  else
    builder.post(0, here, 1);
  std::vector<uint32_t> copies;
  for (int peer = 1; peer < 4; ++peer) {
    const std::array ready{at_entry ? builder.wait_for_entry(2, peer, here) : builder.wait(2, peer, here, 1)};
    copies.push_back(builder.copy(2, {peer, plan::Buffer::input, 0},
                                  builder.output(static_cast<uint64_t>(peer) * 16), 8, ready));
  }
  builder.post(2, taken, 1, copies);
  for (int peer = 1; peer < 4; ++peer) builder.wait(2, peer, taken, 1);
  return builder;
}

// Ranks have met in the call before anything is put into queues.
TEST(QueueProgram, LeavesOutWhatSaysThatARankIsInTheCall) {
  const QueueProgram entering = program_of(takes_from_all(true)), asking = program_of(takes_from_all(false));
  EXPECT_EQ(count(asking, Operation::wait), 3U);
  EXPECT_EQ(count(entering, Operation::wait), 0U);
  EXPECT_EQ(count(asking, Operation::step), 5U);  // three copies and two posts
  EXPECT_EQ(count(entering, Operation::step), 4U);
  EXPECT_EQ(entering.last_waits.size(), 3U);
  EXPECT_EQ(asking.last_waits.size(), 3U);
}

// A graph's runs meet on the GPU.
TEST(QueueProgram, OfAGraphSaysThatARankIsInTheCall) {
  const QueueProgram program = program_of(takes_from_all(true), plan::Signals::chained);
  EXPECT_EQ(count(program, Operation::step), 4U + 1 + 6);  // waits are steps of the chain
}

TEST(QueueProgram, WaitsForTheLastCopyOfAnotherQueueAlone) {
  const QueueProgram program = program_of(takes_from_all(true));
  EXPECT_EQ(program.events, 1U);
  EXPECT_EQ(count(program, Operation::join), 1U);
}

// Of many rounds, say: as many waits as there are counters are enough.
TEST(QueueProgram, WaitsAtItsEndForTheHighestValueOfEachCounter) {
  constexpr uint16_t through = 1;
  plan::Builder builder(0);
  for (uint32_t round = 1; round <= 300; ++round)
    for (int peer = 1; peer < 4; ++peer) builder.wait(2, peer, through, round);
  const QueueProgram program = program_of(std::move(builder));
  ASSERT_EQ(program.last_waits.size(), 3U);
  for (const uint32_t wait : program.last_waits) EXPECT_EQ(program.steps[wait].value, 300U);
}

TEST(QueueProgram, EndsWhereNoOtherQueueWaits) {
  const QueueProgram program = program_of(takes_from_all(true));
  const auto post = std::ranges::find_if(program.operations, [&](const QueueOperation& operation) {
    return operation.kind == Operation::step && program.steps[operation.index].kind == plan::Kind::post;
  });
  ASSERT_NE(post, program.operations.end());
  EXPECT_THAT(program.ends, ElementsAre(post->queue));
  plan::Builder apart(0);
  for (const int peer : {1, 2}) apart.copy(0, apart.input(0), {peer, plan::Buffer::output, 0}, 8);
  EXPECT_THAT(program_of(std::move(apart)).ends, ElementsAre(0, 1));
}

}  // namespace
}  // namespace epccl::runtime
