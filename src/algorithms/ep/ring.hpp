// Space in scratch that messages take in turn. A message lies in one piece; it may be written only when what had the space
// before is no longer in use.
#pragma once

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
      // What lies behind the last message stays unused this time round, but not the next.
      while (is_ahead()) release_front(after);
      next_ = begin_;
    }
    const uint64_t end = next_ + bytes;
    while (is_ahead() && taken_.front().begin < end) {
      if (taken_.front().end > end) {  // the next message has to wait for it, too
        after.insert(after.end(), taken_.front().users.begin(), taken_.front().users.end());
        break;
      }
      release_front(after);
    }
    taken_.push_back({next_, end, {}});
    next_ = end;
    return {end - bytes, first_id_ + taken_.size() - 1};
  }

  /// `space` is in use until `step` is complete. Every space must be told so before the ring comes round to it.
  void in_use_until(const Space& space, uint32_t step) {
    if (space.id >= first_id_) taken_[static_cast<size_t>(space.id - first_id_)].users.push_back(step);
  }

 private:
  struct Taken {
    uint64_t begin, end;
    std::vector<uint32_t> users;
  };

  /// Whether the oldest message is of the round before: what was taken in this round lies behind.
  bool is_ahead() const { return !taken_.empty() && taken_.front().end > next_; }

  void release_front(std::vector<uint32_t>& after) {
    after.insert(after.end(), taken_.front().users.begin(), taken_.front().users.end());
    taken_.pop_front();
    ++first_id_;
  }

  const uint64_t begin_, bytes_;
  uint64_t next_;
  std::deque<Taken> taken_;  // oldest first
  uint64_t first_id_ = 0;
};

}  // namespace epccl::algorithms
