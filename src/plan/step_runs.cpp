#include "plan/step_runs.hpp"

#include <algorithm>

#include "plan/added_dependencies.hpp"
#include "plan/reordered.hpp"

namespace epccl::plan {

StepRuns::StepRuns(const RankPlan& plan, Shared shared)
    : plan_(plan), shared_(shared), of_step_(plan.steps.size(), none) {}

bool StepRuns::waits_alone(uint32_t index) const {
  return plan_.steps[index].kind == Kind::wait && plan_.steps[index].dependency_count == 0;
}

bool StepRuns::can_join(uint32_t index, uint32_t run) const {
  const uint32_t first = runs_[run].steps.front();
  return std::ranges::all_of(plan_.dependencies_of(plan_.steps[index]),
                             [&](uint32_t it) { return it < first || waits_alone(it); });
}

uint32_t StepRuns::add(uint32_t index, uint32_t run) {
  if (run == none) {
    run = static_cast<uint32_t>(runs_.size());
    runs_.emplace_back();
  }
  of_step_[index] = run;
  StepRun& its = runs_[run];
  its.steps.push_back(index);
  for (const uint32_t it : plan_.dependencies_of(plan_.steps[index]))
    if ((shared_ == Shared::everything || waits_alone(it)) &&
        std::ranges::find(its.awaited, it) == its.awaited.end())
      its.awaited.push_back(it);
  return run;
}

std::vector<uint32_t> StepRuns::order() const {
  std::vector<uint32_t> order;
  std::vector<bool> placed(plan_.steps.size(), false);
  const auto place = [&](uint32_t index) {
    if (placed[index]) return;
    placed[index] = true;
    order.push_back(index);
  };
  for (uint32_t index = 0; index < plan_.steps.size(); ++index) {
    if (const uint32_t run = of_step_[index]; run != none && runs_[run].steps.front() == index) {
      for (const uint32_t before : runs_[run].awaited) place(before);
      for (const uint32_t step : runs_[run].steps) place(step);
    }
    place(index);
  }
  return order;
}

RankPlan StepRuns::reordered_by(const std::vector<uint32_t>& order) const {
  const RankPlan together = add_dependencies(plan_, [&](uint32_t index) {
    return of_step_[index] == none ? std::vector<uint32_t>() : runs_[of_step_[index]].awaited;
  });
  return reordered(together, order);
}

}  // namespace epccl::plan
