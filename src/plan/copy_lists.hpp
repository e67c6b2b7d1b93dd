// Which copies a queue is given as one list: those that follow each other in it. Copies of a list have no order, so one that depends on
// another begins a list of its own.
#pragma once

#include <vector>

#include "plan/plan.hpp"
#include "plan/queues.hpp"

namespace epccl::plan {

/// By step: whether it is a copy that depends on one of the copies right before it in its queue.
std::vector<bool> begins_of_lists(const RankPlan& plan, const Queues& queues);

/// The same plan, where every step also depends on the list, or the step, that is before it in its queue: there is no more order in
/// queues than that. (in_queue_order() has more: what may wait for what.)
RankPlan in_list_order(const RankPlan& plan, const Queues& queues);

}  // namespace epccl::plan
