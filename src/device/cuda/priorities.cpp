#include "device/cuda/priorities.hpp"

#include "base/log.hpp"

namespace epccl::device::cuda {

Priorities::Priorities(const Context& context) : context_(context), status_(find()) {}

Status Priorities::find() {
  EPCCL_CURRENT(context_);
  int least = 0, greatest = 0;
  EPCCL_TRY(context_.call(context_.driver().stream_priorities, &least, &greatest));
  own_ = own_priority(least, greatest);
  if (least != greatest) return {};
  has_warned_ = true;
  log::warn(
      log::init, -1,
      "GPU {} has streams of one priority only: a stream that waits for a call may share a hardware queue "
      "with the call's own, and the call then ends by the timeout; CUDA_DEVICE_MAX_CONNECTIONS=32, set "
      "before CUDA is initialised, makes that unlikely",
      context_.ordinal());
  return {};
}

Result<int> Priorities::own() const {
  EPCCL_TRY(status_);
  return own_;
}

void Priorities::look_at(CUstream users) const {
  const auto& ask = context_.driver().stream_priority;
  if (!ask || has_warned_.load(std::memory_order_relaxed)) return;
  if (last_seen_.load(std::memory_order_relaxed) == users) return;
  last_seen_.store(users, std::memory_order_relaxed);
  int priority = 0;
  if (ask(users, &priority) != CUDA_SUCCESS || priority != own_ || has_warned_.exchange(true)) return;
  log::warn(
      log::init, -1,
      "a stream of GPU {} that is given calls has priority {}, as the library's own streams: they may share "
      "a hardware queue, and a call then ends by the timeout, since its stream, which waits for it, holds it "
      "back; create the stream with another priority",
      context_.ordinal(), priority);
}

}  // namespace epccl::device::cuda
