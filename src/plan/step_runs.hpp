// Steps of one rank that shall begin together, as one kernel or one after the other: a plan is put in an order in which they follow each
// other, behind all that any of them waits for.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::plan {

struct StepRun {
  std::vector<uint32_t> steps;
  std::vector<uint32_t> awaited;  // by all of them
};

class StepRuns {
 public:
  static constexpr uint32_t none = Builder::none;
  /// What one step waits for that all of its run are to wait for: everything, or the waits that wait for nothing themselves.
  enum class Shared : uint8_t { everything, lone_waits };

  /// `plan` must stay.
  StepRuns(const RankPlan& plan, Shared shared);

  /// Such a wait can be anywhere in front of who needs it.
  bool waits_alone(uint32_t index) const;
  /// Whether what the step waits for can come before the first step of the run.
  bool can_join(uint32_t index, uint32_t run) const;
  /// Adds a step to a run, or to a new one. Returns which run it is.
  uint32_t add(uint32_t index, uint32_t run);

  const std::vector<StepRun>& all() const { return runs_; }
  /// Step i of the plan in that order is step order()[i] of the plan. Runs are where their first steps were.
  std::vector<uint32_t> order() const;
  /// The plan in that order, where the steps of a run wait for the same.
  RankPlan reordered_by(const std::vector<uint32_t>& order) const;

 private:
  const RankPlan& plan_;
  const Shared shared_;
  std::vector<uint32_t> of_step_;  // its run
  std::vector<StepRun> runs_;
};

}  // namespace epccl::plan
