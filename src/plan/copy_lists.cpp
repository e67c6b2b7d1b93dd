#include "plan/copy_lists.hpp"

#include <algorithm>
#include <utility>

#include "plan/added_dependencies.hpp"

namespace epccl::plan {
namespace {

/// The copies that a queue has been given since its last other step, or since its list began.
class OpenList {
 public:
  OpenList(const RankPlan& plan, const Queues& queues, uint16_t queue)
      : plan_(plan), queues_(queues), queue_(queue) {}

  bool is_reached_by(const Step& step) const {
    if (steps.empty()) return false;
    return std::ranges::any_of(plan_.dependencies_of(step), [&](uint32_t it) {
      if (it < steps.front()) return false;  // nor does what that one depends on
      return queues_.of_step[it] == queue_ ||
             (queues_.of_step[it] == Queues::none && is_reached_by(plan_.steps[it]));
    });
  }

  std::vector<uint32_t> steps;

 private:
  const RankPlan& plan_;
  const Queues& queues_;
  uint16_t queue_;
};

std::vector<OpenList> open_lists(const RankPlan& plan, const Queues& queues) {
  std::vector<OpenList> lists;
  for (size_t queue = 0; queue < queues.count(); ++queue)
    lists.emplace_back(plan, queues, static_cast<uint16_t>(queue));
  return lists;
}

}  // namespace

std::vector<bool> begins_of_lists(const RankPlan& plan, const Queues& queues) {
  std::vector<bool> begins(plan.steps.size(), false);
  std::vector<OpenList> lists = open_lists(plan, queues);
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    if (queues.of_step[index] == Queues::none) continue;
    OpenList& list = lists[queues.of_step[index]];
    const Step& step = plan.steps[index];
    begins[index] = step.kind == Kind::copy && list.is_reached_by(step);
    if (step.kind != Kind::copy || begins[index]) list.steps.clear();
    if (step.kind == Kind::copy) list.steps.push_back(index);
  }
  return begins;
}

RankPlan in_list_order(const RankPlan& plan, const Queues& queues) {
  const std::vector<bool> begins = begins_of_lists(plan, queues);
  std::vector<std::vector<uint32_t>> before(queues.count()), open(queues.count());
  return add_dependencies(plan, [&](uint32_t index) -> std::vector<uint32_t> {
    const uint16_t queue = queues.of_step[index];
    if (queue == Queues::none) return {};
    const bool is_copy = plan.steps[index].kind == Kind::copy;
    if ((!is_copy || begins[index]) && !open[queue].empty()) before[queue] = std::exchange(open[queue], {});
    if (!is_copy) return std::exchange(before[queue], {index});
    open[queue].push_back(index);
    return before[queue];
  });
}

}  // namespace epccl::plan
