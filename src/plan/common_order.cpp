#include "plan/common_order.hpp"

#include <algorithm>
#include <numeric>

#include "plan/reordered.hpp"
#include "plan/step_graph.hpp"

namespace epccl::plan {

Result<RankPlan> in_common_order(const Plan& plan, int rank) {
  EPCCL_ASSIGN(const StepGraph graph, StepGraph::build(plan));
  EPCCL_ASSIGN(const StepOrder order, order_steps(graph));
  const RankPlan& given = plan.ranks[static_cast<size_t>(rank)];
  std::vector<uint32_t> steps(given.steps.size());
  std::iota(steps.begin(), steps.end(), 0U);
  std::ranges::stable_sort(steps, {}, [&](uint32_t index) { return order.depth[graph.id(rank, index)]; });
  return reordered(given, steps);
}

}  // namespace epccl::plan
