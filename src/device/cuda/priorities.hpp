// Streams of one priority share a GPU's hardware queues, and one that waits for a call holds back what stands behind it in its queue. So the
// library's streams have a priority that a program's seldom have: not the lowest four, which PyTorch uses, nor the highest, which others
// give their communication; but the highest where there are no others.
#pragma once

#include <atomic>

#include "device/cuda/context.hpp"

namespace epccl::device::cuda {

/// Of the library's streams, on a GPU with priorities from `least` to `greatest`. Lower numbers are higher priorities.
constexpr int own_priority(int least, int greatest) {
  constexpr int levels_of_others = 5;  // the lowest four, and the highest
  return least - greatest >= levels_of_others ? greatest + 1 : greatest;
}

class Priorities {
 public:
  explicit Priorities(const Context& context);
  Priorities(const Priorities&) = delete;
  Priorities& operator=(const Priorities&) = delete;

  /// Of the library's streams.
  Result<int> own() const;
  /// Warns, once, where a stream that the program has made has it, too. The context is current.
  void look_at(CUstream users) const;

 private:
  Status find();

  const Context& context_;
  int own_ = 0;
  mutable std::atomic<bool> has_warned_{false};
  // Most programs give their calls one stream. Another that gets its handle later is not looked at; it would be warned about only.
  mutable std::atomic<CUstream> last_seen_{nullptr};
  const Status status_;  // last: to find the priority uses the rest
};

}  // namespace epccl::device::cuda
