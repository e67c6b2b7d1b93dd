// Which queue of a device does which step of a rank's plan, where copy engines do the work and not the calling thread.
//
// A queue does its steps in the order of the plan. That adds an order that the plan does not ask for, so what stands behind a
// wait must not be what others need first: steps of different purpose get different queues.
//
//   stage    own input -> own scratch                      push   own memory -> a peer's
//   fetch    a peer's memory -> own scratch                pull   a peer's or own memory -> own output
//   compute  reductions, and token rows where there are several nodes (by_host)
//
// Each kind but stage and compute (which has two for token rows) has up to `width` queues: peers at distance 1, 2, ... take turns, and since every rank begins
// with another peer, engines do not crowd one rank's memory. A post goes where the last step before it is. Waits belong to no
// queue: each queue that needs one waits by itself. The verifier proves in_queue_order(), and in_list_order() of copy_lists.hpp, since
// copies that follow each other in a queue have no order.
//
// In a graph (Signals::chained) posts and waits all are steps of one queue more, `signal`: who runs a graph may run what does not
// depend on each other in any order, one after the other too, so nothing but one chain may wait for other ranks. Such plans are
// put into a common order first (common_order.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "plan/plan.hpp"

namespace epccl::plan {

enum class Lane : uint8_t { stage, push, fetch, pull, compute, signal };
inline constexpr int lanes = 6;
const char* to_string(Lane lane);

/// Where posts and waits go: posts behind what they tell of and waits nowhere, or all into one queue; or both, and messages, nowhere,
/// since the host makes them while queues do the rest.
enum class Signals : uint8_t { spread, chained, by_host };

/// Where sums write: one place each; or all that their results are copied to by the steps right behind them (fewer_kernels.hpp), which are
/// in the queue of the sum then.
enum class Results : uint8_t { in_one_place, everywhere };

struct Queues {
  static constexpr uint16_t none = UINT16_MAX;
  std::vector<uint16_t> of_step;  // none: a wait (spread), what the host does (by_host)
  std::vector<Lane> lane;         // of each queue
  std::vector<uint32_t> sum_of;   // by step: the sum that does this copy as well; Builder::none: none

  size_t count() const { return lane.size(); }
};

/// How many queues of a lane plans use at most.
int most_queues(Lane lane, int width, Signals signals);

/// Error: a step that no queue can do (messages and rows, but by_host).
Result<Queues> assign_queues(const RankPlan& plan, const topology::Cluster& cluster, int width,
                             Signals signals = Signals::spread, Results results = Results::in_one_place);

/// The same plan, where every step also depends on the one before it in its queue.
RankPlan in_queue_order(const RankPlan& plan, const Queues& queues);

}  // namespace epccl::plan
