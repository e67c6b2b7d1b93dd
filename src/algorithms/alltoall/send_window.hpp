// Holds back a rank's network sends, so that what is sent first also arrives first.
//
// Every rank sends to the nodes at distance 1, 2, ... in turn. While all keep to that order each link carries what one
// node sends to one other, and no receiver's link is crowded while another's is idle. Sends that are all started at once
// share the link at the transport's whim instead, and the last of them ends late.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "plan/plan.hpp"

namespace epccl::algorithms {

class SendWindow {
 public:
  /// At most `window` bytes under way, and about half of the `total` that this rank sends, so that short exchanges keep to
  /// the order as well; but always one send, and small ones are never held back.
  SendWindow(uint64_t window, uint64_t total) : bytes_(std::min(window, std::max(total / 2, small))) {}

  /// The send that one of `bytes` more has to wait for; plan::Builder::none when there is room.
  uint32_t wait_for(uint64_t bytes) {
    uint32_t last_to_leave = plan::Builder::none;
    while (!under_way_.empty() && under_way_bytes_ + bytes > bytes_) {
      last_to_leave = under_way_.front().first;
      under_way_bytes_ -= under_way_.front().second;
      under_way_.pop_front();
    }
    return last_to_leave;
  }
  void add(uint32_t send, uint64_t bytes) {
    under_way_.emplace_back(send, bytes);
    under_way_bytes_ += bytes;
  }

 private:
  static constexpr uint64_t small = 128 << 10;
  const uint64_t bytes_;
  std::deque<std::pair<uint32_t, uint64_t>> under_way_;
  uint64_t under_way_bytes_ = 0;
};

}  // namespace epccl::algorithms
