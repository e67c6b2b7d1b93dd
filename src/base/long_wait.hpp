// When a wait that goes on is worth a word.
#pragma once

#include <limits>

namespace epccl {

/// After so many seconds, and again whenever it is twice as long. 0 seconds: never.
class LongWait {
 public:
  LongWait(double since, double first_seconds)
      : since_(since),
        next_(first_seconds > 0 ? since + first_seconds : std::numeric_limits<double>::infinity()) {}

  double next() const { return next_; }
  double seconds(double now) const { return now - since_; }
  /// Whether it is worth one now; then not again before it has doubled.
  bool is_due(double now) {
    if (now < next_) return false;
    next_ = now + seconds(now);
    return true;
  }

 private:
  double since_, next_;
};

}  // namespace epccl
