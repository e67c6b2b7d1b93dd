#include "runtime/comm/communicator.hpp"

#include "base/log.hpp"

namespace epccl::runtime {

Communicator::Communicator(CommParts parts)
    : parts_(std::move(parts)),
      monitor_(*parts_.bootstrap),
      executor_(parts_.cluster, parts_.rank, *parts_.node, parts_.network.get(), monitor_, parts_.config.wait,
                parts_.config.streaming_bytes),
      shm_messages_(*parts_.node, parts_.direct),
      alltoall_(parts_.cluster, parts_.rank, parts_.config, parts_.cost, executor_),
      p2p_(parts_.cluster, parts_.rank, shm_messages_, parts_.network.get()),
      waiter_(*parts_.node, parts_.network.get(), monitor_, parts_.config.wait) {}

Communicator::~Communicator() {
  if (parts_.network != nullptr) {
    const transports::MessageCounters& counters = parts_.network->counters();
    log::info(log::net, rank(),
              "comm {}: {} connections, {} messages ({} bytes) sent, {} ({} bytes) received",
              parts_.config.name, counters.connections, counters.messages_sent, counters.bytes_sent,
              counters.messages_received, counters.bytes_received);
  }
  // A communicator that failed has told the others; one that ends well says goodbye.
  parts_.bootstrap->leave();
}

uint64_t Communicator::take_ticket() {
  const std::lock_guard lock(mutex_);
  return next_ticket_++;
}

Status Communicator::run(uint64_t ticket, const std::function<Status()>& work, double timeout_seconds) {
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [&] { return now_serving_ == ticket; });
  Status status = failure_;
  if (status.ok()) {
    running_ = true;
    lock.unlock();
    executor_.set_timeout(timeout_seconds);
    status = work();
    if (status.code() == Code::remote_error) status = monitor_.explain(std::move(status));
    if (!status.ok()) keep(status);
    lock.lock();
    running_ = false;
  }
  ++now_serving_;
  lock.unlock();
  turn_.notify_all();
  return status;
}

// After a failure buffers go back to the user, so nothing may move any more.
void Communicator::keep(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = status;
  }
  log::warn(log::coll, rank(), "{}", status.message());
  parts_.bootstrap->report_failure(status.message());
  shm_messages_.cancel_all();
  if (parts_.network != nullptr) parts_.network->cancel_all();
}

Status Communicator::finalize() {
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [&] { return now_serving_ == next_ticket_; });
  finalized_ = true;
  return failure_;
}

bool Communicator::finalized() const {
  const std::lock_guard lock(mutex_);
  return finalized_;
}

void Communicator::abort() {
  monitor_.abort();
  parts_.node->wake_self();
  parts_.bootstrap->report_failure(fmt::format(
      "rank {} (pid {} on {}) aborted the communicator", rank(), parts_.node->pid(parts_.node->local()),
      parts_.hosts[static_cast<size_t>(parts_.cluster.node_of(rank()))]));
}

Status Communicator::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Status Communicator::poll_failure() {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok() || running_ || now_serving_ != next_ticket_) return failure_;
  return monitor_.check();
}

}  // namespace epccl::runtime
