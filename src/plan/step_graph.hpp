// All ranks' steps as one graph.
//
//   dependency    step of a rank       -> later step of the same rank
//   message       send                 -> its recv
//   signal        first post that reaches a wait's value -> the wait
//
// Steps are numbered 0 .. size()-1 over all ranks ("id"), rank by rank. A graph refers to its plan, which
// must outlive it and stay unchanged. Immutable after build: any number of threads may read it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "plan/plan.hpp"

namespace epccl::plan {

class StepGraph {
 public:
  static constexpr uint32_t none = UINT32_MAX;

  /// Joins the ranks of a well-formed plan. Errors: a send or recv without, or with more than one,
  /// counterpart of equal size; posts of a counter that do not grow or that no dependency orders; a wait that
  /// no post satisfies.
  static Result<StepGraph> build(const Plan& plan);

  const Plan& plan() const { return *plan_; }
  uint32_t size() const { return static_cast<uint32_t>(rank_of_.size()); }
  uint32_t id(int rank, uint32_t index) const { return first_[static_cast<size_t>(rank)] + index; }
  int rank_of(uint32_t id) const { return rank_of_[id]; }
  uint32_t index_of(uint32_t id) const { return id - first_[static_cast<size_t>(rank_of_[id])]; }
  const Step& step(uint32_t id) const { return rank_plan(id).steps[index_of(id)]; }
  const RankPlan& rank_plan(uint32_t id) const { return plan_->ranks[static_cast<size_t>(rank_of_[id])]; }

  /// The other end: of a send its recv, of a recv its send (none where they have no rows), of a wait the post that releases
  /// it (none when the counter starts high enough); none for the others.
  uint32_t partner(uint32_t id) const { return partner_[id]; }

 private:
  Status match_messages();
  Status match_signals();

  const Plan* plan_ = nullptr;
  std::vector<uint32_t> first_;    // per rank: id of its first step
  std::vector<int32_t> rank_of_;   // per step
  std::vector<uint32_t> partner_;  // per step
};

/// The steps in an order in which they can run, whatever the transports buffer.
struct StepOrder {
  std::vector<uint32_t> ids;
  /// Per step: longer than that of every step that happens before it.
  std::vector<uint32_t> depth;
};

/// Proves that the plan cannot deadlock: the graph has no cycle, not even where a send completes only after
/// its recv was started (a transport may buffer, or wait for the receiver; a plan must run with both). The
/// error names the steps of the cycle.
Result<StepOrder> order_steps(const StepGraph& graph);

}  // namespace epccl::plan
