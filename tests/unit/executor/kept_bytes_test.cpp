// What a kept program says that it takes: all that grows with its plan.
#include "runtime/executor/kept_bytes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/executor/program_cache.hpp"
#include "runtime/queues/device_program.hpp"

namespace epccl::runtime {
namespace {

using plan::Builder;
using topology::Cluster;

constexpr size_t count = 1000;

/// Copies that nothing merges, and one more, `joined` or not, which waits for all of them.
plan::RankPlan copies(bool joined) {
  Builder builder(0);
  std::vector<uint32_t> all;
  for (uint64_t i = 0; i < count; ++i)
    all.push_back(builder.copy(0, builder.input(2 * i * (i + 1)), builder.output(4 * (count - i)), 1));
  if (!joined) all.clear();
  builder.copy(0, builder.input(1), builder.output(0), 1, all);
  return std::move(builder).take();
}

/// Sums of this many inputs of the same rank.
plan::RankPlan sums(size_t parts) {
  Builder builder(0);
  for (uint64_t i = 0; i < count; ++i)
    builder.reduce(0, std::vector(parts, builder.input(4 * i)), {}, builder.output(4 * i), 4, true);
  return std::move(builder).take();
}

class KeptBytes : public testing::Test {
 protected:
  size_t compiled(const plan::RankPlan& plan) const { return compile(plan, cluster_).bytes(); }
  size_t queued(const plan::RankPlan& plan) const {
    return make_queue_program(plan, cluster_, 2, plan::Signals::spread, plan::Makers::engines)->bytes();
  }
  size_t on_device(const plan::RankPlan& plan) const {
    return make_device_program(plan, cluster_, 2, 1 << 20)->bytes();
  }

  const Cluster cluster_ = Cluster::uniform(1, 1);
};

TEST_F(KeptBytes, CountSteps) {
  ASSERT_EQ(copies(false).steps.size(), count + 1);
  EXPECT_GE(compiled(copies(false)), count * sizeof(CompiledStep));
  EXPECT_GE(queued(copies(false)), count * (sizeof(plan::Step) + sizeof(QueueOperation)));
  EXPECT_GE(on_device(copies(false)), count * sizeof(CompiledStep));
}

TEST_F(KeptBytes, CountWhatStepsWaitFor) {
  EXPECT_GE(compiled(copies(true)), compiled(copies(false)) + count * sizeof(uint32_t));
  EXPECT_GE(on_device(copies(true)), on_device(copies(false)) + 2 * count * sizeof(uint32_t));
}

TEST_F(KeptBytes, CountWhatIsAddedUp) {
  constexpr size_t more = 7 * count * sizeof(plan::RowSource);
  EXPECT_GE(compiled(sums(8)), compiled(sums(1)) + more);
  EXPECT_GE(queued(sums(8)), queued(sums(1)) + more);
  EXPECT_GE(on_device(sums(8)), on_device(sums(1)) + more);
}

// So few steps that wait for very many others give way, too.
TEST_F(KeptBytes, AreWhatGivesWay) {
  ProgramCache<CompiledPlan> cache({.programs = 10, .bytes = compiled(copies(true))});
  int made = 0;
  const auto get = [&](const char* name, bool joined) {
    const auto make = [&]() -> Result<CompiledPlan> {
      ++made;
      return compile(copies(joined), cluster_);
    };
    EXPECT_TRUE(cache.get(name, true, make).ok());
  };
  for (const char* name : {"a", "b", "a"}) get(name, true);
  EXPECT_EQ(made, 3);
}

}  // namespace
}  // namespace epccl::runtime
