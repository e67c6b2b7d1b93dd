#include "device/cuda/held_queues.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/log.hpp"

namespace epccl::device::cuda {
namespace {

/// As the driver found it, unless the program has set it since.
size_t connections() {
  constexpr int usual = 8, most = 32;
  const char* asked_for = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int number = asked_for == nullptr ? usual : std::atoi(asked_for);
  return static_cast<size_t>(number > 0 ? std::min(number, most) : usual);
}

}  // namespace

HeldQueues::HeldQueues(int ordinal) : ordinal_(ordinal), connections_(connections()) {}

// Streams of different priorities share no queues: where there are such, it may warn too early.
std::shared_ptr<const void> HeldQueues::hold(CUstream stream) {
  if (stream == CU_STREAM_LEGACY) stream = nullptr;  // the same one
  size_t count = 0;
  bool warns = false;
  {
    const std::lock_guard lock(mutex_);
    ++held_[stream];
    count = held_.size();
    warns = count > connections_ && !has_warned_;
    has_warned_ = has_warned_ || warns;
  }
  if (warns)
    log::warn(log::init, -1,
              "{} streams of GPU {} wait for calls at once, and it has {} hardware queues "
              "(CUDA_DEVICE_MAX_CONNECTIONS): streams that share one hold each other back, and calls of "
              "ranks of one process may then wait for each other until the timeout; give calls fewer "
              "streams, or set CUDA_DEVICE_MAX_CONNECTIONS, to 32 at most, before CUDA is initialised",
              count, ordinal_, connections_);
  return {static_cast<const void*>(this), [this, stream](const void*) { let_go(stream); }};
}

void HeldQueues::let_go(CUstream stream) {
  const std::lock_guard lock(mutex_);
  const auto held = held_.find(stream);
  if (--held->second == 0) held_.erase(held);
}

}  // namespace epccl::device::cuda
