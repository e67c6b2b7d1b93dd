#include "runtime/comm/call_order.hpp"

#include <chrono>
#include <utility>

#include "base/caught.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/long_wait.hpp"
#include "runtime/times/call_times.hpp"

namespace epccl::runtime {
namespace {

constexpr std::chrono::milliseconds listening_period{20};

}  // namespace

std::optional<double> CallOrder::timeout_of_runner() const {
  const std::lock_guard lock(mutex_);
  return running_ ? std::optional(runner_timeout_) : std::nullopt;
}

uint64_t CallOrder::take_ticket() {
  const std::lock_guard lock(mutex_);
  return next_ticket();
}

// What a ticket needs to leave the line is there from the beginning: it may leave for want of memory.
uint64_t CallOrder::next_ticket() {
  const size_t in_line = next_ticket_ - now_serving_ + 1;
  if (left_.capacity() < in_line) left_.reserve(2 * in_line);
  return next_ticket_++;
}

void CallOrder::pass(uint64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (ticket == now_serving_)
      next();
    else
      left_.push_back(ticket);
  }
  turn_.notify_all();
}

// The turn of the next ticket that has not left the line.
void CallOrder::next() {
  do ++now_serving_;
  while (!left_.empty() && std::erase(left_, now_serving_) > 0);
}

// The monitor is asked under the lock, and where no work does.
Status CallOrder::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& condition) {
  if (condition()) return {};
  const double since = now_seconds();
  LongWait long_wait(since, first_warning_);
  while (!turn_.wait_for(lock, listening_period, condition)) {
    // What works hears of failures itself. (What has given way asks under this mutex, too.)
    if (replaying_ || (running_ && ways_given_ == 0)) continue;
    EPCCL_TRY(monitor_.check_while_idle());
    if (!failure_.ok()) return failed_before();
    const double now = now_seconds();
    if (!long_wait.is_due(now)) continue;
    log::warn(log::coll, rank_,
              "a call has been waiting for {:.0f} s for its turn: an earlier one of this communicator is "
              "behind work of its stream that is not over",
              now - since);
  }
  return {};
}

Status CallOrder::pass(uint64_t ticket, const std::function<Status()>& work) {
  {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return now_serving_ == ticket; });
  }
  Status status = caught(work);  // the turn must end
  pass(ticket);
  return status;
}

Admission CallOrder::begin(uint64_t ticket, double timeout_seconds) {
  std::unique_lock lock(mutex_);
  return begin(lock, ticket, timeout_seconds);
}

Admission CallOrder::begin_next() {
  std::unique_lock lock(mutex_);
  return begin(lock, next_ticket(), 0);
}

// What it throws gives up the turn as well, or its end follows.
Admission CallOrder::begin(std::unique_lock<std::mutex>& lock, uint64_t ticket, double timeout_seconds) {
  try {
    return admit(lock, ticket, timeout_seconds);
  } catch (const std::exception&) {
    Admission none = Status(Code::system_error, "");
    none.has_come = now_serving_ == ticket && !replaying_;
    if (!none.has_come) left_.push_back(ticket);
    return none;
  }
}

Admission CallOrder::admit(std::unique_lock<std::mutex>& lock, uint64_t ticket, double timeout_seconds) {
  if (Status heard = wait(lock, [&] { return now_serving_ == ticket && !replaying_; }); !heard.ok()) {
    left_.push_back(ticket);
    Admission none = std::move(heard);
    none.has_come = false;
    return none;
  }
  if (revoked_) return error(Code::invalid_usage, "the communicator has been revoked");
  if (!failure_.ok()) return failed_before();  // which may be why it was finalized before this call's turn
  if (finalized_) return error(Code::invalid_usage, "the communicator has been finalized");
  running_ = true;
  runner_ = std::this_thread::get_id();
  runner_timeout_ = timeout_seconds > 0 ? timeout_seconds : default_timeout();
  return runner_timeout_;
}

void CallOrder::end() {
  {
    const std::lock_guard lock(mutex_);
    running_ = is_over_ = false;
    next();
  }
  turn_.notify_all();
}

void CallOrder::work_is_over() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = running_ && runner_ == std::this_thread::get_id();
  }
  turn_.notify_all();
}

Result<double> CallOrder::begin_replay() {
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [this] { return !running_ || is_over_ || ways_given_ > 0; });
  if (revoked_) return error(Code::invalid_usage, "the communicator has been revoked");
  EPCCL_TRY(failure_);
  if (finalized_)
    return error(Code::invalid_usage, "a replay of a graph whose communicator has been finalized");
  replaying_ = true;
  return default_timeout();
}

void CallOrder::end_replay() {
  {
    const std::lock_guard lock(mutex_);
    replaying_ = false;
  }
  turn_.notify_all();
}

bool CallOrder::give_way() {
  {
    const std::lock_guard lock(mutex_);
    if (!running_ || runner_ != std::this_thread::get_id()) return false;
    ++ways_given_;
  }
  turn_.notify_all();
  return true;
}

Status CallOrder::take_way_back() {
  std::unique_lock lock(mutex_);
  if (ways_given_ == 1) turn_.wait(lock, [this] { return !replaying_; });
  --ways_given_;
  CallTimes::begin_now();
  return failure_;
}

bool CallOrder::keep(const Status& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return false;
  failure_ = failure;
  return true;
}

bool CallOrder::keep_from_outside(const Status& failure) {
  const std::lock_guard lock(mutex_);
  if (revoked_ || !failure_.ok()) return false;
  failure_ = failure;
  return true;
}

Status CallOrder::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// The monitor is asked under the lock: then no work begins that asks it, too. Who has finalized needs nobody any more: that others are
// gone is no failure. Nor is it to who is idle that their processes have ended regularly; the next call that needs them fails.
Status CallOrder::poll() {
  const std::lock_guard lock(mutex_);
  if (revoked_) return running_ || replaying_ ? Status(Code::in_progress, "") : Status{};
  if (!failure_.ok() || finalized_ || somebody_works()) return failure_;
  return monitor_.check_while_idle();
}

Status CallOrder::poll_for_replays() {
  const std::lock_guard lock(mutex_);
  if (revoked_) return {Code::remote_error, "the communicator was revoked"};
  if (!failure_.ok() || finalized_ || !nothing_runs()) return failure_;
  return monitor_.check();
}

void CallOrder::listen() {
  const std::lock_guard lock(mutex_);
  if (!running_ && !replaying_) monitor_.hear();
}

Status CallOrder::poll_while_waiting() {
  const std::lock_guard lock(mutex_);
  return replaying_ ? failure_ : monitor_.check();
}

bool CallOrder::is_quiet() const {
  const std::lock_guard lock(mutex_);
  return nothing_runs();
}

Status CallOrder::finalize() {
  std::unique_lock lock(mutex_);
  Status heard = wait(lock, [this] { return nothing_runs(); });
  finalized_ = true;
  return heard;
}

void CallOrder::revoke() {
  const std::lock_guard lock(mutex_);
  revoked_ = true;
}

bool CallOrder::revoked() const {
  const std::lock_guard lock(mutex_);
  return revoked_;
}

void CallOrder::stop(const char* why) {
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [this] { return (!running_ || is_over_) && !replaying_; });
  if (failure_.ok()) failure_ = Status(Code::remote_error, why);
}

}  // namespace epccl::runtime
