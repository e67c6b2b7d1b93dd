#include "plan/hand_outs.hpp"

#include <algorithm>

#include "plan/added_dependencies.hpp"
#include "plan/reordered.hpp"

namespace epccl::plan {
namespace {

bool hands_out(const RankPlan& plan, const Step& step) {
  return step.kind == Kind::move_rows && step.source.buffer == Buffer::scratch &&
         step.source.rank == plan.rank && step.destination.buffer == Buffer::output;
}

/// Steps that have the same rows, and what any of them waits for.
struct Group {
  std::vector<uint32_t> steps, dependencies;
};

/// Finds groups, in the order of their first steps.
class Groups {
 public:
  explicit Groups(const RankPlan& plan) : plan_(plan), of_step_(plan.steps.size(), Builder::none) {
    for (uint32_t index = 0; index < plan.steps.size(); ++index) {
      if (hands_out(plan, plan.steps[index]))
        add(index);
      else if (!waits_alone(index))
        is_open_ = false;
    }
  }

  const Group* of(uint32_t index) const {
    return of_step_[index] == Builder::none ? nullptr : &all_[of_step_[index]];
  }
  const Group* begun_by(uint32_t index) const {
    const Group* group = of(index);
    return group != nullptr && group->steps.front() == index ? group : nullptr;
  }
  const std::vector<Group>& all() const { return all_; }

 private:
  bool waits_alone(uint32_t index) const {
    return plan_.steps[index].kind == Kind::wait && plan_.steps[index].dependency_count == 0;
  }
  // What the others wait for can come before the first of them.
  bool joins(const Step& step) const {
    if (!is_open_) return false;
    const uint32_t first_index = all_.back().steps.front();
    const Step& first = plan_.steps[first_index];
    return step.source == first.source && step.bytes == first.bytes &&
           step.source_first_row == first.source_first_row && step.stage == first.stage &&
           std::ranges::all_of(plan_.dependencies_of(step),
                               [&](uint32_t it) { return it < first_index || waits_alone(it); });
  }
  void add(uint32_t index) {
    const Step& step = plan_.steps[index];
    if (!joins(step)) all_.emplace_back();
    is_open_ = true;
    Group& group = all_.back();
    group.steps.push_back(index);
    for (const uint32_t it : plan_.dependencies_of(step))
      if (std::ranges::find(group.dependencies, it) == group.dependencies.end())
        group.dependencies.push_back(it);
    of_step_[index] = static_cast<uint32_t>(all_.size() - 1);
  }

  const RankPlan& plan_;
  std::vector<uint32_t> of_step_;  // its group
  std::vector<Group> all_;
  bool is_open_ = false;  // the last group goes on
};

}  // namespace

HandedOut with_hand_outs(const RankPlan& plan) {
  const Groups groups(plan);
  std::vector<uint32_t> order;
  std::vector<bool> placed(plan.steps.size(), false);
  const auto place = [&](uint32_t index) {
    if (placed[index]) return;
    placed[index] = true;
    order.push_back(index);
  };
  HandedOut made;
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    if (const Group* group = groups.begun_by(index)) {
      for (const uint32_t before : group->dependencies) place(before);
      const auto count = static_cast<uint32_t>(group->steps.size());
      if (count > 1) made.hand_outs.push_back({static_cast<uint32_t>(order.size()), count});
      for (const uint32_t step : group->steps) place(step);
    }
    place(index);
  }
  if (made.hand_outs.empty()) {
    made.plan = plan;
    return made;
  }
  const RankPlan together = add_dependencies(plan, [&](uint32_t index) {
    const Group* group = groups.of(index);
    return group != nullptr ? group->dependencies : std::vector<uint32_t>();
  });
  made.plan = reordered(together, order);
  return made;
}

}  // namespace epccl::plan
