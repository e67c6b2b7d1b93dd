// Of a plan that is being run: which steps can begin, and how many are left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/executor/compiled_plan.hpp"

namespace epccl::runtime {

class ReadySteps {
 public:
  void begin(const CompiledPlan& plan) {
    left_ = plan.steps.size();
    in_its_way_ = plan.dependency_counts;
    ready_ = plan.initially_ready;
    next_ = 0;
  }

  /// start(step) for each that can begin, and for those that `start` itself lets go, as long as goes_on(). False: there was none.
  template <typename Start, typename GoesOn>
  bool start_all(Start start, GoesOn goes_on) {
    const bool any = !ready_.empty();
    while (next_ < ready_.size() && goes_on()) start(ready_[next_++]);
    ready_.clear();
    next_ = 0;
    return any;
  }

  /// One step less is in the way of this one.
  void release(uint32_t step) {
    if (--in_its_way_[step] == 0) ready_.push_back(step);
  }
  void completed() { --left_; }
  bool all_complete() const { return left_ == 0; }

 private:
  size_t left_ = 0;
  std::vector<uint32_t> in_its_way_;  // by step: those it depends on
  std::vector<uint32_t> ready_;
  size_t next_ = 0;  // of ready_
};

}  // namespace epccl::runtime
