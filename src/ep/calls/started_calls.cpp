#include "ep/calls/started_calls.hpp"

#include <utility>

namespace epccl::ep {

StartedCalls::Call StartedCalls::add(const device::HostStream& stream, Counted counted) {
  auto call = std::make_shared<runtime::CallProgress>();
  const std::lock_guard lock(mutex_);
  forget_what_is_over();
  calls_.push_back({call, stream.watchers(), counted});
  started_ += counted == Counted::yes ? 1 : 0;
  return call;
}

// With the lock. Their errors are kept.
void StartedCalls::forget_what_is_over() {
  std::erase_if(calls_, [this](const Started& started) {
    if (started.call->state() != State::over) return false;
    if (first_error_.ok()) first_error_ = started.call->status();
    over_ += started.counted == Counted::yes ? 1 : 0;
    return true;
  });
}

StartedCalls::Counts StartedCalls::counts() {
  const std::lock_guard lock(mutex_);
  forget_what_is_over();
  Counts counts;
  counts.started = started_;
  counts.over = counts.past_network = over_;
  bool has_bytes =
      false;  // of the first that runs: the next one may have begun before it is known that this is over
  for (const Started& started : calls_) {
    const State state = started.call->state();
    if (state == State::queued || started.counted == Counted::no) continue;
    if (state >= State::node) ++counts.past_network;
    if (state == State::over || std::exchange(has_bytes, true)) continue;
    const auto network = started.call->network(), node = started.call->node();
    counts.network.done += network.done;
    counts.network.total += network.total;
    counts.node.done += node.done;
    counts.node.total += node.total;
  }
  return counts;
}

std::vector<StartedCalls::Started> StartedCalls::current() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void StartedCalls::wait(const std::vector<Started>& calls, State state) {
  for (const Started& started : calls) {
    const device::HostStream::Watch watch(started.watchers);
    started.call->wait(state);
  }
}

Status StartedCalls::wait(State state) {
  wait(current(), state);
  const std::lock_guard lock(mutex_);
  forget_what_is_over();
  return state == State::over ? std::exchange(first_error_, Status{}) : first_error_;
}

void StartedCalls::hold_back(device::HostStream* stream, State state) {
  if (stream == nullptr) return wait(current(), state);
  stream->enqueue([calls = current(), state]() -> Status {
    for (const Started& started : calls) started.call->wait(state);
    return {};
  });
}

}  // namespace epccl::ep
