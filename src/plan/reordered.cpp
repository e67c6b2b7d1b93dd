#include "plan/reordered.hpp"

#include <vector>

namespace epccl::plan {

RankPlan reordered(const RankPlan& plan, std::span<const uint32_t> steps) {
  std::vector<uint32_t> place(steps.size());
  for (uint32_t at = 0; at < steps.size(); ++at) place[steps[at]] = at;
  RankPlan ordered = plan;
  for (uint32_t at = 0; at < steps.size(); ++at) ordered.steps[at] = plan.steps[steps[at]];
  for (uint32_t& dependency : ordered.dependencies) dependency = place[dependency];
  return ordered;
}

}  // namespace epccl::plan
