#include "runtime/queues/lane_queues.hpp"

#include <utility>

#include "runtime/queues/queue_feed.hpp"

namespace epccl::runtime {

Result<device::Queue*> LaneQueues::get(plan::Lane lane, size_t number, bool by_cores) {
  auto& of_lane = by_lane_[static_cast<size_t>(lane) + (by_cores ? plan::lanes : 0)];
  std::unique_lock lock(mutex_);
  while (of_lane.size() <= number) {
    lock.unlock();
    EPCCL_ASSIGN(auto made, device_.make_queue(kind_of(lane, by_cores)));
    lock.lock();
    of_lane.push_back(std::move(made));
  }
  return of_lane[number].get();
}

Status LaneQueues::prepare(int width, plan::Signals signals, bool by_cores) {
  for (int each = 0; each < plan::lanes; ++each) {
    const auto lane = static_cast<plan::Lane>(each);
    const int most = plan::most_queues(lane, width, signals);
    if (most > 0) EPCCL_TRY(get(lane, static_cast<size_t>(most - 1), by_cores).status());
  }
  return {};
}

std::vector<device::Queue*> LaneQueues::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<device::Queue*> queues;
  for (const auto& of_lane : by_lane_)
    for (const auto& queue : of_lane) queues.push_back(queue.get());
  return queues;
}

void LaneQueues::clear() {
  decltype(by_lane_) ended;
  const std::lock_guard lock(mutex_);
  ended.swap(by_lane_);
}

}  // namespace epccl::runtime
