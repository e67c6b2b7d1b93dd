#include "plan/hand_outs.hpp"

#include "plan/step_runs.hpp"

namespace epccl::plan {
namespace {

bool hands_out(const RankPlan& plan, const Step& step) {
  return step.kind == Kind::move_rows && step.source.buffer == Buffer::scratch &&
         step.source.rank == plan.rank && step.destination.buffer == Buffer::output;
}

bool same_rows(const Step& a, const Step& b) {
  return a.source == b.source && a.bytes == b.bytes && a.source_first_row == b.source_first_row &&
         a.stage == b.stage;
}

/// Steps that hand out the same rows, with nothing but waits between them.
StepRuns find_hand_outs(const RankPlan& plan) {
  StepRuns runs(plan, StepRuns::Shared::everything);
  uint32_t open = StepRuns::none, first = 0;
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    const Step& step = plan.steps[index];
    if (!hands_out(plan, step)) {
      if (!runs.waits_alone(index)) open = StepRuns::none;
      continue;
    }
    const bool joins =
        open != StepRuns::none && same_rows(step, plan.steps[first]) && runs.can_join(index, open);
    if (!joins) first = index;
    open = runs.add(index, joins ? open : StepRuns::none);
  }
  return runs;
}

}  // namespace

HandedOut with_hand_outs(const RankPlan& plan) {
  const StepRuns runs = find_hand_outs(plan);
  const std::vector<uint32_t> order = runs.order();
  std::vector<uint32_t> place_of(order.size());
  for (uint32_t place = 0; place < order.size(); ++place) place_of[order[place]] = place;
  HandedOut made;
  for (const StepRun& run : runs.all())
    if (run.steps.size() > 1)
      made.hand_outs.push_back({place_of[run.steps.front()], static_cast<uint32_t>(run.steps.size())});
  made.plan = made.hand_outs.empty() ? plan : runs.reordered_by(order);
  return made;
}

}  // namespace epccl::plan
