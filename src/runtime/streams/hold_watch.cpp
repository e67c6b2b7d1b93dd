#include "runtime/streams/hold_watch.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/never_destroyed.hpp"
#include "base/thread.hpp"

namespace epccl::runtime {
namespace {

constexpr std::chrono::milliseconds look_period{50};
// Without a hold: calls come in rows, and each would have to wake the thread.
constexpr int looks_before_sleep = 100;
constexpr double beyond_timeout = 0.5;  // seconds: a call that can still end by its own timeout does
constexpr double deaf_after = 1;        // seconds in one call of the driver

}  // namespace

void HoldWatch::Worker::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

// Of one that is closed the thread may have ended, and its trace be another's.
bool HoldWatch::Worker::runs_on(const device::DriverCall::Trace& thread) {
  const std::lock_guard lock(mutex_);
  return !is_closed_ && trace_.load(std::memory_order_acquire) == &thread;
}

HoldWatch::Worker::Call HoldWatch::Worker::look(double now) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return {};  // its thread may be another's by now
  }
  const device::DriverCall::Trace* const trace = trace_.load(std::memory_order_acquire);
  if (trace == nullptr) return {};
  const char* const name = trace->name.load(std::memory_order_acquire);
  const uint64_t begun = trace->begun.load(std::memory_order_relaxed);
  if (name == nullptr || begun != begun_) since_ = now;
  begun_ = begun;
  return {name, since_};
}

double HoldWatch::Worker::timeout() {
  const std::lock_guard lock(mutex_);
  return is_closed_ ? 0 : owner_.timeout();
}

void HoldWatch::Worker::fail(Status why) {
  const std::lock_guard lock(mutex_);
  if (!is_closed_) owner_.fail(std::move(why));
}

void HoldWatch::Worker::fail_if_lost(const Call& call, double seconds) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  if (Status why = owner_.lost(); !why.ok()) return owner_.fail(std::move(why));
  if (seconds > owner_.patience() + beyond_timeout)
    owner_.fail(error(Code::remote_error, Reason::timeout,
                      "timeout: a call waits for other ranks, and its thread has been in {} for {:.1f} s: "
                      "another thread seems to be in a CUDA call that waits for the GPU, and the driver lets "
                      "no other in meanwhile",
                      call.name, seconds));
}

HoldWatch& HoldWatch::of_process() {
  static NeverDestroyed<HoldWatch> instance;
  return *instance;
}

uint64_t HoldWatch::watch(Hold hold) {
  const std::lock_guard lock(mutex_);
  if (!is_running_) start_thread([this] { run(); }).detach();  // ends with the process
  is_running_ = true;
  holds_.emplace(++last_ticket_, Watched{std::move(hold)});
  if (is_asleep_) wake_.notify_all();
  return last_ticket_;
}

void HoldWatch::forget(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  holds_.erase(ticket);
}

// Communicators fail first: who finds the stream through finds out why.
void HoldWatch::let_go_of_this_thread(const Status& why) {
  const device::DriverCall::Trace& mine = device::DriverCall::of_this_thread();
  HoldWatch& watch = of_process();
  const std::lock_guard lock(watch.mutex_);
  for (auto& [ticket, watched] : watch.holds_) {
    const auto& workers = watched.hold.workers;
    const auto runs_here = [&mine](const WorkerPtr& worker) { return worker->runs_on(mine); };
    if (watched.hold.waits == Waits::queues || std::ranges::none_of(workers, runs_here)) continue;
    if (!std::exchange(watched.is_told, true))
      log::warn(
          log::coll, -1,
          "what a call that failed had queued did not run out: a stream that waits for the call seems to "
          "stand before it in a hardware queue ({})",
          why.message());
    for (const WorkerPtr& worker : workers) worker->fail(why);
    watched.hold.let_go();
  }
}

void HoldWatch::run() {
  std::unique_lock lock(mutex_);
  for (int idle = 0;; idle = holds_.empty() ? idle + 1 : 0) {
    is_asleep_ = idle > looks_before_sleep;
    if (is_asleep_) {
      wake_.wait(lock, [this] { return !holds_.empty(); });
    } else {
      wake_.wait_for(lock, look_period);
    }
    const double now = now_seconds();
    for (auto& [ticket, watched] : holds_) look_at(watched, now);
  }
}

void HoldWatch::listen_for(Watched& watched, double now) {
  for (const WorkerPtr& worker : watched.hold.workers) {
    const Worker::Call call = worker->look(now);
    const double seconds = now - std::max(call.since, watched.since);
    if (call.name != nullptr && seconds > deaf_after) worker->fail_if_lost(call, seconds);
  }
}

void HoldWatch::look_at(Watched& watched, double now) {
  if (!watched.hold.has_come()) return;
  if (watched.since == 0) watched.since = now;
  if (watched.hold.waits == Waits::queues || watched.hold.is_queued()) {
    if (!watched.hold.is_over()) listen_for(watched, now);
    return;
  }
  const auto look = [&](const WorkerPtr& worker) {
    const Worker::Call call = worker->look(now);
    const double seconds = now - std::max(call.since, watched.since);
    if (call.name == nullptr || seconds <= worker->timeout() + beyond_timeout) return false;
    worker->fail(error(Code::remote_error, Reason::timeout,
                       "timeout: a stream of the GPU waits for a call whose thread has been in {} for {:.1f} "
                       "s: another thread seems to be in a CUDA call that waits for the GPU, and the driver "
                       "lets no other in meanwhile",
                       call.name, seconds));
    return true;
  };
  bool is_stuck = false;
  for (const WorkerPtr& worker : watched.hold.workers) is_stuck |= look(worker);
  if (!is_stuck) return;
  for (const WorkerPtr& worker : watched.hold.workers)
    worker->fail({Code::remote_error, Reason::timeout,
                  "timeout: a call of its group, for which a stream of the GPU waits, did not go on"});
  watched.hold.let_go();
}

}  // namespace epccl::runtime
