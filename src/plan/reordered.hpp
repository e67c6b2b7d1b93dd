// A rank's steps in another order.
#pragma once

#include <cstdint>
#include <span>

#include "plan/plan.hpp"

namespace epccl::plan {

/// The plan in which step steps[at] is number `at`; all are named once. Dependencies are the same steps, and have to come before who
/// depends on them there, too.
RankPlan reordered(const RankPlan& plan, std::span<const uint32_t> steps);

}  // namespace epccl::plan
