// Places in a rank's scratch that are used again and again.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::algorithms {

/// `count` places of `bytes` each, taken in turn. Who takes one has to wait for those who used it before. Slots do not outlive it.
class SlotRing {
 public:
  SlotRing(plan::Location base, uint64_t bytes, size_t count) : base_(base), bytes_(bytes), users_(count) {}
  SlotRing(const SlotRing&) = delete;
  SlotRing& operator=(const SlotRing&) = delete;

  class Slot {
   public:
    plan::Location at;
    std::vector<uint32_t> after;  // steps that must be over before anything is written there

    /// `step` reads what is in the slot.
    void used_by(uint32_t step) const { users_->push_back(step); }

   private:
    friend SlotRing;
    Slot(plan::Location place, std::vector<uint32_t> earlier, std::vector<uint32_t>* users)
        : at(place), after(std::move(earlier)), users_(users) {}
    std::vector<uint32_t>* users_;
  };

  Slot take() {
    const size_t number = next_++ % users_.size();
    plan::Location at = base_;
    at.offset += number * bytes_;
    return {at, std::exchange(users_[number], {}), &users_[number]};
  }

 private:
  plan::Location base_;
  uint64_t bytes_;
  std::vector<std::vector<uint32_t>> users_;
  size_t next_ = 0;
};

}  // namespace epccl::algorithms
