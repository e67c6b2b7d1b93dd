#include "device/held_streams.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/per_process.hpp"
#include "base/thread.hpp"

namespace epccl::device {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds patience{200};

using Work = std::vector<std::function<void()>>;

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  int held = 0, freeing = 0;           // one of them is 0, if nothing was impatient
  int streams = 0;                     // of what is held: that wait
  std::map<uint64_t, int> streams_of;  // for ranks of one communicator
  uint64_t ended = 0,
           waited_in_vain = UINT64_MAX;  // holds that have; how many had when somebody was impatient last
  Work put_off;
  std::set<const HeldStreams::Waiting*> waiting;
  Clock::time_point put_off_since, pause_ends;  // since: also since the last pause
  HeldStreams::Pauses pauses;
};
State& state() {
  static PerProcess<State> instance;
  return *instance;
}

/// Of the calling thread, that keep others out.
thread_local int own_quiets = 0;

/// `lock` is of the state.
void free_all(Work work, std::unique_lock<std::mutex> lock) {
  ++state().freeing;
  lock.unlock();
  for (auto& each : work) each();
  work.clear();
  lock.lock();
  --state().freeing;
  state().changed.notify_all();
}

/// A program that is always ahead of the GPU holds a stream at any time, and nothing that is put off would ever be done: now and then
/// all that begin wait for those who hold. Not long, since these may be waiting for them. `lock` is of the state.
/// `is_of_use`: whether anything would be done then.
void pause(std::unique_lock<std::mutex>& lock, bool is_of_use) {
  const auto now = Clock::now();
  const HeldStreams::Pauses& pauses = state().pauses;
  if (is_of_use && !state().put_off.empty() && now - state().put_off_since > pauses.after) {
    state().pause_ends = now + pauses.longest;
    state().put_off_since = state().pause_ends;
  }
  if (now < state().pause_ends)
    state().changed.wait_until(lock, state().pause_ends,
                               [] { return state().held == 0 || state().put_off.empty(); });
}

}  // namespace

HeldStreams::Waiting::Waiting(std::function<bool()> waits, std::function<bool()> may_begin)
    : waits_(std::move(waits)), may_begin_(std::move(may_begin)) {
  const std::lock_guard lock(state().mutex);
  state().waiting.insert(this);
}

HeldStreams::Waiting::~Waiting() {
  {
    const std::lock_guard lock(state().mutex);
    state().waiting.erase(this);
  }
  retry();
}

// Under the state's mutex; of other work than held streams.
HeldStreams::Waits HeldStreams::who_waits() {
  Waits found = Waits::none;
  for (const Waiting* each : state().waiting) {
    if (each->waits_()) return Waits::some;
    if (each->may_begin_()) found = Waits::may_begin;
  }
  return found;
}

// Under the state's mutex.
bool HeldStreams::must_put_off() {
  if (state().held > 0) return true;
  const Waits waits = who_waits();
  return waits == Waits::some || (waits == Waits::may_begin && state().put_off.size() < most_for_what_begins);
}

bool HeldStreams::wait_for_threads(uint64_t except_of) {
  const std::lock_guard lock(state().mutex);
  const auto known = state().streams_of.find(except_of);
  const int others = state().streams - (known != state().streams_of.end() ? known->second : 0);
  return others > 0 || std::ranges::any_of(state().waiting, [](const Waiting* each) {
           return each->may_begin_() || each->waits_();
         });
}

void HeldStreams::retry() {
  retry(std::unique_lock(state().mutex));
}

// `lock` is of the state.
void HeldStreams::retry(std::unique_lock<std::mutex> lock) {
  if (state().put_off.empty() || must_put_off()) return;
  free_all(std::exchange(state().put_off, {}), std::move(lock));
}

void HeldStreams::retry_beside() {
  {
    const std::lock_guard lock(state().mutex);
    if (state().put_off.empty() || must_put_off()) return;
  }
  try {
    start_thread([] { retry(); }).detach();
  } catch (const std::system_error&) {
    // Without a thread for it now: it is asked for again.
  }
}

HeldStreams::Hold::Hold(Begins begins) {
  std::unique_lock lock(state().mutex);
  if (begins == Begins::after_frees) {
    pause(lock, who_waits() == Waits::none);
    state().changed.wait(lock, [] { return state().freeing == 0; });
  }
  ++state().held;
}

void HeldStreams::Hold::stream_waits(uint64_t communicator) {
  const std::lock_guard lock(state().mutex);
  if (std::exchange(waits_, true)) return;
  ++state().streams;
  communicator_ = communicator;
  if (communicator_ != 0) ++state().streams_of[communicator_];
}

void HeldStreams::Hold::stream_needs_no_thread() {
  const std::lock_guard lock(state().mutex);
  uncount();
}

// Under the state's mutex.
void HeldStreams::Hold::uncount() {
  if (!std::exchange(waits_, false)) return;
  --state().streams;
  const auto known = state().streams_of.find(communicator_);
  if (known != state().streams_of.end() && --known->second == 0) state().streams_of.erase(known);
}

// In one step: who has waited for this in a pause would hold again before anything is freed.
HeldStreams::Hold::~Hold() {
  std::unique_lock lock(state().mutex);
  uncount();
  ++state().ended;
  if (--state().held > 0) return;
  state().changed.notify_all();
  retry(std::move(lock));
}

HeldStreams::Quiet::Quiet(Waits waits) {
  std::unique_lock lock(state().mutex);
  // Streams that one has waited for in vain wait for the caller again, if it is one thread that calls for several ranks.
  const bool is_in_vain = state().waited_in_vain == state().ended;
  const bool is_patient = waits == Waits::for_a_moment && !is_in_vain;
  const auto longest = is_patient ? patience : std::chrono::milliseconds(0);
  keeps_out_ = state().changed.wait_for(lock, longest, [] { return state().held == 0; });
  if (!keeps_out_) {
    if (is_patient) state().waited_in_vain = state().ended;
    return;
  }
  ++state().freeing;
  ++own_quiets;
}

HeldStreams::Quiet::~Quiet() {
  if (!keeps_out_) return;
  const std::lock_guard lock(state().mutex);
  --state().freeing;
  --own_quiets;
  state().changed.notify_all();
}

void HeldStreams::when_none(std::function<void()> work) {
  std::unique_lock lock(state().mutex);
  if (must_put_off()) {
    if (state().put_off.empty()) state().put_off_since = Clock::now();
    state().put_off.push_back(std::move(work));
    return;
  }
  Work now = std::exchange(state().put_off, {});
  now.push_back(std::move(work));
  free_all(std::move(now), std::move(lock));
}

HeldStreams::Pauses HeldStreams::set_pauses(const Pauses& pauses) {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().pauses, pauses);
}

bool HeldStreams::settle(double seconds) {
  std::unique_lock lock(state().mutex);
  const auto is_settled = [] { return state().put_off.empty() && state().freeing == own_quiets; };
  const bool was_put_off = !is_settled();
  // What only might begin some time is no reason to do without.
  if (state().held == 0 && !state().put_off.empty() && who_waits() != Waits::some) {
    free_all(std::exchange(state().put_off, {}), std::move(lock));
    lock = std::unique_lock(state().mutex);
  }
  state().changed.wait_for(lock, std::chrono::duration<double>(seconds), is_settled);
  return was_put_off;
}

}  // namespace epccl::device
