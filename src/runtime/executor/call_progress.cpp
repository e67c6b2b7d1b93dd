#include "runtime/executor/call_progress.hpp"

#include <utility>

namespace epccl::runtime {
namespace {

using plan::Kind;

// One without rows, as plans of maxima have them, is none.
bool is_message(const plan::Step& step) {
  return (step.kind == Kind::send || step.kind == Kind::recv) && step.rows > 0;
}

bool is_inside_node(const plan::Step& step) {
  const bool moves = step.kind == Kind::copy || step.kind == Kind::move_rows ||
                     step.kind == Kind::reduce_rows || step.kind == Kind::reduce;
  return moves && step.stage > 0;
}

}  // namespace

void CallProgress::begin(const CompiledPlan& plan) {
  uint64_t network = 0, node = 0;
  for (const CompiledStep& compiled : plan.steps) {
    const plan::Step& step = compiled.step;
    if (is_inside_node(step)) node += step.total_bytes();
    if (!is_message(step)) continue;
    network += step.total_bytes();
    ++messages_left_;
  }
  bytes_[0].total.store(network, std::memory_order_relaxed);
  bytes_[1].total.store(node, std::memory_order_relaxed);
  set(messages_left_ > 0 ? State::network : State::node);
}

void CallProgress::completed(const plan::Step& step) {
  if (is_inside_node(step)) bytes_[1].add(step.total_bytes());
  if (!is_message(step)) return;
  bytes_[0].add(step.total_bytes());
  --messages_left_;
}

void CallProgress::begin_on_node(uint64_t bytes) {
  bytes_[1].total.store(bytes, std::memory_order_relaxed);
  set(State::node);
}

void CallProgress::completed_on_node() {
  bytes_[1].add(bytes_[1].get().total - bytes_[1].get().done);
}

void CallProgress::drained() {
  if (messages_left_ == 0 && state() == State::network) set(State::node);
}

void CallProgress::finish(Status status) {
  {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
  }
  set(State::over);
}

void CallProgress::set(State state) {
  // In one order with what wait() counts itself by: notify_all() looks at that first.
  state_.store(static_cast<int>(state), std::memory_order_seq_cst);
  state_.notify_all();
}

void CallProgress::wait(State state) const {
  for (int now = state_.load(std::memory_order_acquire); now < static_cast<int>(state);
       now = state_.load(std::memory_order_acquire))
    state_.wait(now, std::memory_order_acquire);
}

Status CallProgress::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace epccl::runtime
