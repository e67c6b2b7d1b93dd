#include "real_children.hpp"

#include <utility>

namespace epccl::nccl {

bool RealChildren::enter() {
  const std::lock_guard lock(mutex_);
  if (closing_) return false;
  ++inside_;
  return true;
}

void RealChildren::leave() {
  const std::lock_guard lock(mutex_);
  --inside_;
  left_.notify_all();
}

void RealChildren::close() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  left_.wait(lock, [this] { return inside_ == 0; });
}

void RealChildren::leave_behind(Slot slot) {
  const std::lock_guard lock(mutex_);
  left_behind_.push_back(std::move(slot));
  left_behind_count_ = left_behind_.size();
}

std::vector<ncclComm_t> RealChildren::take_left_behind() {
  const std::lock_guard lock(mutex_);
  std::vector<ncclComm_t> comms;
  for (const Slot& slot : std::exchange(left_behind_, {}))
    if (ncclComm_t comm = __atomic_load_n(slot.get(), __ATOMIC_ACQUIRE); comm != nullptr)
      comms.push_back(comm);
  left_behind_count_ = 0;
  return comms;
}

}  // namespace epccl::nccl
