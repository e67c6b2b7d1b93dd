#include "runtime/executor/copy_offload.hpp"

#include "runtime/executor/node_calls.hpp"
#include "runtime/executor/node_words.hpp"

namespace epccl::runtime {

using transports::meeting_counter;

CopyOffload::~CopyOffload() {
  if (queue_ == nullptr) return;
  drain();
  queue_.reset();
  hide_words(device_, node_);
}

// The counter of meetings: calls on memory of the host that engines help with have none.
uint64_t CopyOffload::value(uint32_t count) const {
  return counter_value(sequence_, count);
}

Status CopyOffload::start(uint32_t step, std::span<const device::CopyWork> copies) {
  if (queue_ == nullptr) {
    EPCCL_TRY(show_words(device_, node_));
    EPCCL_ASSIGN(queue_, device_.make_queue(device::QueueKind::copy_engine));
  }
  EPCCL_TRY(queue_->copy(copies));
  steps_.push_back(step);
  return queue_->post(node_.segment().counter(node_.local(), meeting_counter), value(++started_));
}

bool CopyOffload::ready() const {
  return pending() && node_.counter(node_.local(), meeting_counter) >= value(finished_ + 1);
}

std::optional<uint32_t> CopyOffload::done() {
  if (!ready()) return std::nullopt;
  ++finished_;
  const uint32_t step = steps_.front();
  steps_.pop_front();
  return step;
}

transports::SleepFor CopyOffload::reason() const {
  transports::SleepFor reason{meeting_counter, value(finished_ + 1), {}};
  reason.add(node_.local());
  return reason;
}

void CopyOffload::drain() {
  if (queue_ != nullptr) static_cast<void>(queue_->synchronize());
  steps_.clear();
}

}  // namespace epccl::runtime
