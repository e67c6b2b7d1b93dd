// An order of each rank's steps that all ranks share.
//
// A plan's steps are a graph, and their numbers mean little: a rank that did them one after the other, by number, could wait for a
// rank that waits for it. Where posts and waits are to be one chain a rank (Signals::chained) they are put into an order in which
// all ranks together get on: by the longest way that leads to a step, over all ranks. Whatever else follows that order, such as the
// order of queues, leads forward too, so there is no cycle.
#pragma once

#include "base/status.hpp"
#include "plan/plan.hpp"

namespace epccl::plan {

/// The steps of one rank of the plan in that order; dependencies are the same. Errors: as StepGraph::build(), order_steps().
Result<RankPlan> in_common_order(const Plan& plan, int rank);

}  // namespace epccl::plan
