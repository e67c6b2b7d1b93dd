#include "api/groups/first_call.hpp"

#include <unistd.h>

#include <deque>

namespace epccl::api {

using runtime::CallStage;

FirstCall::FirstCall(const TurnPtr& turn) {
  if (turn == nullptr || in_group()) return;
  wait_ = turn->wait();
  turn_ = turn;
}

Status FirstCall::wait() const {
  if (wait_.as == nullptr) return {};
  std::deque<device::HostStream::Watch> watches;
  for (const device::HostStream::Watchers& worker : wait_.workers) watches.emplace_back(worker);
  const bool is_done = wait_.as->wait_for(*wait_.call, wait_.longest);
  Status status;
  if (const TurnPtr turn = turn_.lock(); turn != nullptr && wait_.call->stage.load() != CallStage::over)
    status = is_done ? turn->go_on_behind() : turn->hold_after_all();
  // The caller has the buffers back then.
  while (!status.ok() && wait_.call->stage.load(std::memory_order_acquire) != CallStage::over) usleep(1000);
  return status;
}

}  // namespace epccl::api
