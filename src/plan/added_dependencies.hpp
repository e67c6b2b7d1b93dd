// A rank's plan with more order than its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::plan {

/// The plan, whose steps also depend on what `before_of(index)` says of each, asked in order: a vector of earlier steps.
template <typename BeforeOf>
RankPlan add_dependencies(const RankPlan& plan, BeforeOf before_of) {
  RankPlan ordered = plan;
  ordered.dependencies.clear();
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    Step& step = ordered.steps[index];
    const auto own = plan.dependencies_of(plan.steps[index]);
    step.first_dependency = static_cast<uint32_t>(ordered.dependencies.size());
    ordered.dependencies.insert(ordered.dependencies.end(), own.begin(), own.end());
    const std::vector<uint32_t> added = before_of(index);
    for (const uint32_t each : added)
      if (std::ranges::find(own, each) == own.end()) ordered.dependencies.push_back(each);
    step.dependency_count = static_cast<uint32_t>(ordered.dependencies.size()) - step.first_dependency;
  }
  return ordered;
}

}  // namespace epccl::plan
