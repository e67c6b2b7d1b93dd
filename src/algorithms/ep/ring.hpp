// Space in scratch that messages take in turn. A message lies in one piece; it may be written only when what had the space
// before is no longer in use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

namespace epccl::algorithms {

class Ring {
 public:
  /// Scratch bytes [begin, begin + bytes).
  Ring(uint64_t begin, uint64_t bytes) : begin_(begin), bytes_(bytes), next_(begin) {}

  struct Space {
    uint64_t offset = 0;
    uint64_t id = 0;
  };

  /// Takes `bytes` (at most what the ring has); adds to `after` the steps that must be complete before they are written.
  Space take(uint64_t bytes, std::vector<uint32_t>& after) {
    if (next_ + bytes > begin_ + bytes_) {
      // What lies behind the last message stays unused this time round, and is met again in the next.
      std::rotate(
          taken_.begin(),
          std::find_if(taken_.begin(), taken_.end(), [this](const Taken& it) { return it.end <= next_; }),
          taken_.end());
      next_ = begin_;
    }
    const uint64_t end = next_ + bytes;
    while (is_ahead() && taken_.front().begin < end) {
      after.insert(after.end(), taken_.front().users.begin(), taken_.front().users.end());
      if (taken_.front().end > end) break;  // the next message has to wait for it, too
      taken_.pop_front();
    }
    taken_.push_back({next_id_, next_, end, {}});
    next_ = end;
    return {end - bytes, next_id_++};
  }

  /// `space` is in use until `step` is complete. Every space must be told so before the ring comes round to it.
  void in_use_until(const Space& space, uint32_t step) {
    const auto it = std::find_if(taken_.rbegin(), taken_.rend(),
                                 [&](const Taken& taken) { return taken.id == space.id; });
    if (it != taken_.rend()) it->users.push_back(step);
  }

 private:
  struct Taken {
    uint64_t id, begin, end;
    std::vector<uint32_t> users;
  };

  /// Whether the oldest message is of the round before: what was taken in this round lies behind.
  bool is_ahead() const { return !taken_.empty() && taken_.front().end > next_; }

  const uint64_t begin_, bytes_;
  uint64_t next_;
  std::deque<Taken> taken_;  // what is ahead, by place; then what is behind, by place
  uint64_t next_id_ = 0;
};

}  // namespace epccl::algorithms
