// Sleeps between looks at what cannot be waited for.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace epccl_torch {

/// Longer from one to the next, up to a millisecond.
class Pause {
 public:
  void sleep() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, std::chrono::microseconds(1000));
  }

 private:
  std::chrono::microseconds next_{10};
};

}  // namespace epccl_torch
