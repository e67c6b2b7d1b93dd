// Rows that a relay has received in one message and hands on to several ranks of its node: a step for each rank, which one kernel can
// make together, reading each row once.
//
//   wait a, rows -> a, wait b, rows -> b      becomes      wait a, wait b, rows -> a, rows -> b: the last two have the same dependencies
//
// What comes of it is a plan again, and proved as one.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::plan {

/// Steps [first, first + count) of a plan: they move rows of one region of the rank's scratch, and begin together.
struct HandOut {
  uint32_t first = 0, count = 0;
};

struct HandedOut {
  RankPlan plan;
  std::vector<HandOut> hand_outs;  // of two steps and more, in the plan's order
};
/// Lets the steps of each hand-out begin together, one behind the other.
HandedOut with_hand_outs(const RankPlan& plan);

}  // namespace epccl::plan
