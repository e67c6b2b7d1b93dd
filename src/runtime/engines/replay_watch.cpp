#include "runtime/engines/replay_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/clock.hpp"
#include "base/thread.hpp"
#include "device/held_streams.hpp"
#include "transports/shm/node_segment.hpp"

namespace epccl::runtime {
namespace {

using std::chrono::milliseconds;

// How late a failure is heard of while a replay runs, and while none does.
constexpr milliseconds busy_period{2}, idle_period{20};
constexpr double longest_answer = 2;  // seconds in which a kernel that goes on says what it waited for

/// What a replay waits for another rank to do, which has posted to `slot` then.
std::string awaited_text(uint64_t slot) {
  if (slot == transports::meeting_counter) return " to run it as well";
  if (slot == transports::done_counter) return " to be through with others' rows";
  return fmt::format(" in it (its counter {})", slot);
}

uint64_t read(uint64_t& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}

}  // namespace

ReplayWatch::ReplayWatch(std::shared_ptr<GraphRoom> room, Owner owner)
    : room_(std::move(room)), owner_(std::move(owner)), thread_(start_thread([this] { watch(); })) {}

ReplayWatch::~ReplayWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReplayWatch::watch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool is_busy = last_.begun != last_.over;
    changed_.wait_for(lock, is_busy ? busy_period : idle_period, [&] { return is_ending_; });
    if (is_ending_) return;
    lock.unlock();
    const Status status = look();
    if (!status.ok()) {
      owner_.failed(status);  // before the stream goes on
      room_->give_up();
    }
    if (!room_->is_replaying()) device::HeldStreams::retry_beside();
    lock.lock();
    if (status.ok()) continue;
    // Nothing is left to look after.
    changed_.wait(lock, [&] { return is_ending_; });
  }
}

Status ReplayWatch::look() {
  EPCCL_TRY(owner_.check());
  if (const uint64_t other = read(room_->report().other); other != 0) return mismatch(other);
  const Seen seen = see();
  const double now = now_seconds();
  if (seen != last_ || seen.begun == seen.over) since_ = now;
  last_ = seen;
  return now - since_ < owner_.timeout_seconds ? Status{} : timed_out();
}

ReplayWatch::Seen ReplayWatch::see() const {
  device::kernels::ReplayReport& report = room_->report();
  const uint64_t over = read(report.over), begun = read(report.begun);  // in this order: over <= begun
  return {begun, over, read(report.step)};
}

Status ReplayWatch::mismatch(uint64_t other) const {
  device::kernels::ReplayReport& report = room_->report();
  return error(Code::invalid_usage, "replays differ: rank {} runs {}, rank {} runs captured call {}",
               owner_.rank, room_->name_of(read(report.call)), owner_.rank_at(static_cast<int>(other) - 1),
               read(report.their_call));
}

// What it waits for it says as it goes on.
Status ReplayWatch::timed_out() {
  device::kernels::ReplayReport& report = room_->report();
  owner_.timed_out();
  room_->give_up();
  const double until = now_seconds() + std::min(owner_.timeout_seconds, longest_answer);
  const auto has_ended = [this] {
    const Seen now = see();
    return now.begun == now.over;
  };
  while (read(report.awaited) == 0 && !has_ended() && now_seconds() < until) usleep(50);
  std::string what = "its copies";
  if (const uint64_t awaited = read(report.awaited); awaited != 0) {
    const uint64_t slot = (awaited - 1) & 0xffff;
    what = fmt::format("rank {} (same node)", owner_.rank_at(static_cast<int>((awaited - 1) >> 16)));
    what += awaited_text(slot);
  }
  return error(Code::remote_error, Reason::timeout, "timeout: a replay of {} waited {:.1f} s for {}",
               room_->name_of(read(report.call)), owner_.timeout_seconds, what);
}

}  // namespace epccl::runtime
