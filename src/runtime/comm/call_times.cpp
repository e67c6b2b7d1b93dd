#include "runtime/comm/call_times.hpp"

#include <utility>

namespace epccl::runtime {

using device::WorkTimes;

void CallTimes::measure(bool on) {
  std::vector<std::shared_ptr<WorkTimes>> ended;  // outside of the lock: a device's events end with them
  const std::lock_guard lock(mutex_);
  is_on_.store(on, std::memory_order_relaxed);
  if (!on) ended.swap(spare_);
}

Result<CallTimes::Sums> CallTimes::take() {
  const std::lock_guard lock(mutex_);
  const Sums sums = std::exchange(sums_, {});
  EPCCL_TRY(std::exchange(failure_, {}));
  return sums;
}

std::shared_ptr<WorkTimes> CallTimes::borrow() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return std::make_shared<WorkTimes>();
  auto times = std::move(spare_.back());
  spare_.pop_back();
  return times;
}

Status CallTimes::run(const std::function<Status()>& work, const std::function<void()>& settle) {
  const std::shared_ptr<WorkTimes> times = borrow();
  const WorkTimes::Scope scope(times);
  times->restart();
  EPCCL_TRY(work());
  settle();
  const auto split = times->split();
  const std::lock_guard lock(mutex_);
  if (is_on()) spare_.push_back(times);
  if (!split.ok()) {
    if (failure_.ok()) failure_ = split.status();
    return {};
  }
  ++sums_.calls;
  sums_.seconds.total += split->total;
  sums_.seconds.kernel += split->kernel;
  sums_.seconds.copy += split->copy;
  sums_.seconds.signal += split->signal;
  return {};
}

void CallTimes::begin_now() {
  if (auto* times = WorkTimes::current()) times->restart();
}

}  // namespace epccl::runtime
