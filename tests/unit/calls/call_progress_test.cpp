// How far a call is, by the steps of its plan that are through.
#include "runtime/executor/call_progress.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace epccl::runtime {
namespace {

using plan::Kind;
using State = CallProgress::State;

CompiledStep step_of(Kind kind, uint32_t rows) {
  CompiledStep compiled;
  compiled.step.kind = kind;
  compiled.step.rows = rows;
  compiled.step.bytes = 8;
  return compiled;
}

CompiledPlan plan_of(std::vector<CompiledStep> steps) {
  CompiledPlan plan;
  plan.steps = std::move(steps);
  return plan;
}

TEST(CallProgress, IsPastTheNetworkWithTheLastMessage) {
  const CompiledPlan plan = plan_of({step_of(Kind::send, 2), step_of(Kind::recv, 1)});
  CallProgress progress;
  progress.begin(plan);
  EXPECT_EQ(progress.network().total, 24U);
  progress.completed(plan.steps[0].step);
  progress.drained();
  EXPECT_EQ(progress.state(), State::network);
  progress.completed(plan.steps[1].step);
  progress.drained();
  EXPECT_EQ(progress.state(), State::node);
}

// A plan of maxima has a message wherever there could be one.
TEST(CallProgress, WaitsForNoMessageWithoutRows) {
  const CompiledPlan plan = plan_of({step_of(Kind::send, 0), step_of(Kind::recv, 1)});
  CallProgress progress;
  progress.begin(plan);
  progress.completed(plan.steps[1].step);
  progress.drained();
  EXPECT_EQ(progress.state(), State::node) << "before the step of the other";
  progress.completed(plan.steps[0].step);
  EXPECT_EQ(progress.state(), State::node);

  CallProgress idle;
  idle.begin(plan_of({step_of(Kind::send, 0), step_of(Kind::recv, 0)}));
  EXPECT_EQ(idle.state(), State::node) << "a rank with nothing to send or receive";
}

}  // namespace
}  // namespace epccl::runtime
