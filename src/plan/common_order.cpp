#include "plan/common_order.hpp"

#include <algorithm>
#include <numeric>

#include "plan/step_graph.hpp"

namespace epccl::plan {

Result<RankPlan> in_common_order(const Plan& plan, int rank) {
  EPCCL_ASSIGN(const StepGraph graph, StepGraph::build(plan));
  EPCCL_ASSIGN(const StepOrder order, order_steps(graph));
  const RankPlan& given = plan.ranks[static_cast<size_t>(rank)];
  std::vector<uint32_t> steps(given.steps.size());
  std::iota(steps.begin(), steps.end(), 0U);
  std::ranges::stable_sort(steps, {}, [&](uint32_t index) { return order.depth[graph.id(rank, index)]; });
  std::vector<uint32_t> place(steps.size());
  for (uint32_t at = 0; at < steps.size(); ++at) place[steps[at]] = at;

  RankPlan ordered = given;
  for (uint32_t at = 0; at < steps.size(); ++at) ordered.steps[at] = given.steps[steps[at]];
  for (uint32_t& dependency : ordered.dependencies) dependency = place[dependency];
  return ordered;
}

}  // namespace epccl::plan
