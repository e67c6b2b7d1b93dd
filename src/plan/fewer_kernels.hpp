// Plans whose steps are kernels, made so that few kernels do much: each launch costs time, and a kernel that reads memory once and
// writes all places moves the fewest bytes. What comes of it is a plan again, and proved as one.
//
//   results_behind_sums     sum -> own output        copy own output -> peer 1 ...  (elsewhere)
//                           becomes  sum -> own output, copy -> peer 1, copy -> peer 2, ...    one behind the other: Queues::sum_of
//                           takes these for one kernel that writes all places
//   copies_together         wait a, copy a, wait b, copy b      becomes  wait a, wait b, copy a, copy b: one list
#pragma once

#include "plan/plan.hpp"
#include "plan/queues.hpp"

namespace epccl::plan {

/// Whether the step `sum` can write what `copy` would copy of its result: all of it, to a peer, after nothing that the sum does not come
/// after itself; and writing an element there overwrites no other element that the sum still has to read, in place either.
bool sum_can_write(const RankPlan& plan, uint32_t sum, const Step& copy);

/// Places that a sum writes beside its own, at most.
inline constexpr uint32_t most_results_of_a_sum = 63;

/// Puts copies right behind the sums that can write what they copy.
RankPlan results_behind_sums(const RankPlan& plan);

/// Lets copies that follow each other in a queue begin together: when all may that do not depend on what comes between them.
RankPlan copies_together(const RankPlan& plan, const Queues& queues);

/// How a plan's steps are made by a device.
enum class Makers : uint8_t {
  engines,           // copies by copy engines, each sum writes one place
  engines_and_sums,  // the same, and a sum writes all places that its result goes to
  cores,             // copies are kernels, too: as few as can be
};

struct QueuedPlan {
  RankPlan plan;
  Queues queues;
};
/// The plan as those want it, and its queues. `width` as for assign_queues(); cores have one queue of a lane.
Result<QueuedPlan> queued_plan(const RankPlan& plan, const topology::Cluster& cluster, int width,
                               Signals signals, Makers makers);

}  // namespace epccl::plan
