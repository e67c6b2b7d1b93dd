// Numbers that stand for things the program makes and ends: each is used again as late as possible, so that a stale one is found.
#pragma once

#include <optional>

namespace epccl {

class ReusedNumbers {
 public:
  /// Of `first` to `end` - 1.
  constexpr ReusedNumbers(int first, int end) : first_(first), end_(end), next_(first) {}

  /// The next that is not in use; nothing: all are.
  template <typename InUse>
  std::optional<int> take(const InUse& in_use) {
    for (int tried = first_; tried < end_; ++tried) {
      const int number = next_;
      next_ = next_ + 1 < end_ ? next_ + 1 : first_;
      if (!in_use(number)) return number;
    }
    return std::nullopt;
  }

 private:
  const int first_, end_;
  int next_;
};

}  // namespace epccl
