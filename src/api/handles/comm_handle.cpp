#include "api/handles/comm_handle.hpp"

#include <atomic>

namespace epccl::api {
namespace {

std::atomic<uint64_t> changes_made = 0;

// Before the mutex is given back.
void note_change() {
  changes_made.fetch_add(1, std::memory_order_release);
}

}  // namespace

uint64_t CommHandle::changes() {
  return changes_made.load(std::memory_order_acquire);
}

// The code is NCCL's for a communicator that is used before it is ready.
Status CommHandle::usable() const {
  if (background_ > 0)
    return {Code::invalid_argument,
            "the communicator is not ready: what it was asked for is still in progress "
            "(poll epcclCommGetAsyncError() until it is not epcclInProgress)"};
  if (!failure_.ok()) return failure_;
  if (communicator_ == nullptr)
    return {Code::invalid_argument, "the communicator is not ready: it is still being made"};
  return {};
}

Result<CommPtr> CommHandle::communicator() const {
  const std::lock_guard lock(mutex_);
  EPCCL_TRY(usable());
  return communicator_;
}

CommPtr CommHandle::made() const {
  const std::lock_guard lock(mutex_);
  return communicator_;
}

Status CommHandle::async_error() const {
  const std::lock_guard lock(mutex_);
  if (background_ > 0 || (communicator_ == nullptr && failure_.ok())) return {Code::in_progress, ""};
  if (!failure_.ok()) return failure_;
  return background_failure_.ok() ? communicator_->poll_failure() : background_failure_;
}

Status CommHandle::failure() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok() || communicator_ == nullptr) return failure_;
  return background_failure_.ok() ? communicator_->failure() : background_failure_;
}

bool CommHandle::complete(CommPtr communicator) {
  const std::lock_guard lock(mutex_);
  if (aborted_) {
    communicator->abort();
    return false;
  }
  communicator_ = std::move(communicator);
  note_change();
  return true;
}

CommPtr CommHandle::take() {
  const std::lock_guard lock(mutex_);
  note_change();
  return std::move(communicator_);
}

void CommHandle::fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
  note_change();
}

void CommHandle::begin_background() {
  const std::lock_guard lock(mutex_);
  if (background_++ == 0) background_failure_ = {};
  note_change();
}

void CommHandle::end_background(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (!status.ok() && background_failure_.ok()) background_failure_ = status;
  --background_;
  note_change();
  quiet_.notify_all();
}

void CommHandle::add_interrupt(const std::shared_ptr<Interrupt>& interrupt) {
  const std::lock_guard lock(mutex_);
  interrupts_.push_back(interrupt);
  if (aborted_) interrupt->fire();
}

void CommHandle::remove_interrupt(const std::shared_ptr<Interrupt>& interrupt) {
  const std::lock_guard lock(mutex_);
  std::erase(interrupts_, interrupt);
}

void CommHandle::interrupt() {
  const std::lock_guard lock(mutex_);
  for (const auto& each : interrupts_) each->fire();
}

void CommHandle::abort() {
  std::unique_lock lock(mutex_);
  aborted_ = true;
  for (const auto& each : interrupts_) each->fire();
  const CommPtr communicator = communicator_;
  lock.unlock();
  if (communicator != nullptr) communicator->abort();
  lock.lock();
  const bool is_in_making = derived_ && communicator == nullptr;
  if (!is_in_making) quiet_.wait(lock, [this] { return background_ == 0; });
}

}  // namespace epccl::api
