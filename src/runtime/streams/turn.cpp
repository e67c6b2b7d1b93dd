#include "runtime/streams/turn.hpp"

#include <algorithm>
#include <utility>

#include "device/held_streams.hpp"
#include "runtime/streams/device_worker.hpp"

namespace epccl::runtime {

// Who waits for the end finds nothing of the call under way.
Turn::~Turn() {
  hold_.reset();
  before_.reset();
  end_.reset();
  users_.reset();
  if (waited_for_ != nullptr) waited_for_->reaches(*call_, CallStage::over);
}

void Turn::share_with(const DeviceWorker& worker) {
  const device::HostStream::Watchers& watchers = worker.stream().watchers();
  if (hold_ == nullptr || std::ranges::find(workers_, watchers) != workers_.end()) return;
  workers_.push_back(watchers);
  hold_->waits_for(worker.watched(), worker.communicator());
  std::shared_ptr<FirstCalls> first = worker.first_call(is_on_null_stream_);
  if (first == nullptr) return;
  waited_for_ = std::move(first);
  longest_wait_ = waited_for_->longest();
}

Status Turn::mark() {
  if (users_->capturing())
    return error(Code::invalid_usage,
                 "the stream is being captured into a graph, and the call is made by a thread that waits for "
                 "the stream, which cannot be captured");
  return users_->record(*before_);
}

Status Turn::hold() {
  if (hold_ == nullptr) return {};
  return waited_for_ != nullptr ? hold_->begin_without_waiting(*users_) : hold_->begin(*users_);
}

// What is queued waits for what was queued before it. A stream that waits for a thread is no such thing, and what the thread has to queue
// may come to stand behind the call, in a hardware queue.
Status Turn::queue_behind() {
  if (hold_ == nullptr || !hold_->has_begun()) return {};
  if (waited_for_ == nullptr && !queues_behind_held_) return {};
  if (waited_for_ != nullptr) {
    if (wait_for_threads()) return {};
    EPCCL_ASSIGN(end_, device_->make_event());
  }
  behind_ = QueuedBehind{hold_->come(), end_.get(), hold_->release(),
                         [as = waited_for_, call = call_, hold = hold_.get()](device::WordValue over) {
                           hold->is_queued(over);
                           if (as != nullptr) as->reaches(*call, CallStage::queued);
                         },
                         [hold = hold_.get()] { hold->let_queues_go(); }};
  return {};
}

// The communicator's own come before this one in its order, on all ranks.
bool Turn::wait_for_threads() const {
  return device::HeldStreams::wait_for_threads(hold_->communicator());
}

const QueuedBehind* Turn::behind() const {
  if (!behind_ || (waited_for_ == nullptr && wait_for_threads())) return nullptr;
  return &*behind_;
}

Status Turn::go_on_behind() {
  return users_->wait(*end_);
}

Status Turn::hold_after_all() {
  return hold_->begin(*users_);
}

}  // namespace epccl::runtime
