#include "runtime/executor/waiter.hpp"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "device/work_times.hpp"
#include "runtime/executor/placement.hpp"

namespace epccl::runtime {
namespace {

// A message from another node takes its time to arrive, and to wake up for it costs most of a short call. Where all ranks of a node
// have messages, those who have theirs sleep soon: their visits would only delay their peers. Ranks without messages (of one node
// alone; where one rank has those of its node) had better not: to wake them costs their peers more than their visits do, and ranks
// that sleep and wake all the time come to lie unevenly on the cores.
constexpr double yield_at_most = 4e-3;
constexpr double yield_for_peers = 50e-6;
constexpr double move_period = 2e-3;
constexpr double check_period = 1e-3;        // of the control line, while yielding
constexpr double first_report_after = 0.25;  // a wait this long is told to the hub, which compares the ranks
constexpr double report_period = 2.0;
constexpr double longest_between_looks = 0.5;  // of a process that runs, and is given a core now and then
constexpr double next_look_at_gone = 10e-3;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Waiter::begin(bool has_messages, const QueuedBehind* behind) {
  moved();
  stream_ = behind != nullptr ? behind->come : device::WordValue{};
  stream_came_ = 0;
  if (policy_.share_cores && policy_.home_core >= 0 && sched_getcpu() != policy_.home_core)
    go_home(now_seconds());
  if (armed_rarely_ && !device::HostStream::runs_unwatched()) arm(false);
  yield_seconds_ = local_yield_seconds_ = policy_.yield_seconds;
  if (policy_.yield_seconds >= 0) return;
  yield_seconds_ = yield_at_most;
  local_yield_seconds_ = has_messages ? yield_for_peers : yield_at_most;
}

// Now and then, so that a core that something else needs more is not fought for.
void Waiter::go_home(double now) {
  if (now < next_move_) return;
  next_move_ = now + move_period;
  go_to_core(policy_.home_core);
}

// There is a core for every rank, but the scheduler may leave two on one for seconds while another is idle: each spins in
// vain, and gives the core away only then.
void Waiter::part_ways(double now) {
  if (policy_.home_core < 0 || now < next_move_) return;
  next_move_ = now + move_period;
  if (!node_.meets_on_core(sched_getcpu())) return;
  go_to_core(policy_.home_core);
  node_.meets_on_core(policy_.home_core);
}

double Waiter::begin_idle(For what) {
  const double now = now_seconds();
  if (device::WorkTimes::current() != nullptr) {
    const bool counts = what == For::others;
    if (measured_since_ != 0 && !counts) measured();
    if (measured_since_ == 0 && counts) measured_since_ = now;
  }
  // Who was stopped itself (a suspended job or machine, a debugger; a driver that keeps the thread) has not seen others be silent meanwhile.
  if (idle_since_ != 0) stopped_ += std::max(0.0, now - last_look_ - longest_between_looks);
  last_look_ = now;
  if (idle_since_ == 0) {
    idle_since_ = now;
    stopped_ = 0;
    next_check_ = now + check_period;
    next_report_ = now + std::min(first_report_after, timeout_seconds_ + 1e-3);
    long_wait_ = LongWait(now, policy_.first_warning);
  }
  return now;
}

void Waiter::measured() {
  const double since = std::exchange(measured_since_, 0);
  const double until = now_seconds();
  for (auto* times = device::WorkTimes::current(); times != nullptr; times = times->outer())
    times->add(device::WorkKind::signal, since, until);
}

Status Waiter::pause(double now) {
  if (now - idle_since_ < policy_.spin_seconds) {
    for (int i = 0; i < 16; ++i) relax();
  } else {
    if (policy_.spin_seconds > 0) part_ways(now);
    sched_yield();
  }
  if (now < next_check_) return {};
  next_check_ = now + check_period;
  return monitor_.check();
}

Status Waiter::rest(double now) {
  constexpr double awake = 50e-6;
  constexpr useconds_t nap_microseconds = 20;
  if (now - idle_since_ < awake) {
    sched_yield();
  } else {
    usleep(nap_microseconds);
  }
  if (now < next_check_) return {};
  next_check_ = now + check_period;
  return monitor_.check();
}

// Nothing is silent before the call's stream has come.
bool Waiter::awaits_stream(double now) {
  if (stream_.word == nullptr) return false;
  stream_came_ = now;
  stopped_ = 0;
  if (stream_.word->load(std::memory_order_acquire) < stream_.at_least) return true;
  stream_.word = nullptr;
  return false;
}

/// "; ..." or "".
std::string Waiter::what_others_do(bool briefly) const {
  const std::string others = monitor_.bootstrap().describe_others(briefly);
  return others.empty() ? "" : "; " + others;
}

Status Waiter::report(double now, const Situation& situation) {
  EPCCL_TRY(monitor_.check());
  if (awaits_stream(now)) {
    next_report_ = now + first_report_after;
    long_wait_ = LongWait(now, policy_.first_warning);
    return {};
  }
  // Who could not tell why, for lack of memory, has said that much.
  if (node_.gave_up()) return node_.why_gave_up();
  const double since = std::max(idle_since_, stream_came_) + stopped_, waited = now - since;
  if (waited > timeout_seconds_)
    return error(Code::remote_error, Reason::timeout,
                 "rank {}: timeout: {} (call {}) waited {:.1f} s for {}{}", rank_, situation.call,
                 situation.sequence, waited, situation.waiting, what_others_do(false));
  if (long_wait_.is_due(now) && log::enabled(log::Level::warn, log::coll))
    log::warn(log::coll, rank_, "{} (call {}) has waited {:.0f} s for {}{}; it gives up after {:g} s",
              situation.call, situation.sequence, waited, situation.waiting, what_others_do(true),
              timeout_seconds_);
  next_report_ = std::min({now + report_period, long_wait_.next(), since + timeout_seconds_ + 1e-3});
  monitor_.bootstrap().report_stall({situation.sequence, situation.call, situation.waiting,
                                     waited < report_period ? std::vector<int>{} : situation.peers});
  return monitor_.bootstrap().is_alone() ? check_alone(now, situation) : Status{};
}

// Nobody tells of those that fail or die now. (Over the network a connection breaks.) What a rank did last counts before its end: it is gone if it
// is still waited for after another look at everything.
Status Waiter::check_alone(double now, const Situation& situation) {
  EPCCL_TRY(monitor_.check());
  const int gone = policy_.neighbours.empty() ? -1 : neighbour_gone(situation);
  if (gone < 0 || gone != gone_neighbour_) {
    gone_neighbour_ = gone;
    if (gone >= 0) next_report_ = now + next_look_at_gone;
    return {};
  }
  const std::string call = situation.sequence > 0
                               ? fmt::format("call #{} ({})", situation.sequence, situation.call)
                               : situation.call;
  return error(Code::remote_error,
               "rank {} (same node, pid {}) is gone: its process has ended, while rank {} is in {}",
               policy_.neighbours[static_cast<size_t>(gone)], node_.pid(gone), rank_, call);
}

/// The position of one that the call needs and whose process has ended; -1: none.
int Waiter::neighbour_gone(const Situation& situation) const {
  for (int local = 0; local < node_.local_size(); ++local) {
    const int rank = policy_.neighbours[static_cast<size_t>(local)];
    const bool is_awaited = situation.peers.empty()
                                ? node_.done(local) < situation.sequence
                                : std::ranges::find(situation.peers, rank) != situation.peers.end();
    if (local != node_.local() && is_awaited && !node_.lives(local)) return local;
  }
  return -1;
}

bool Waiter::arm(bool rarely) {
  armed_rarely_ = rarely;
  return network_->arm(rarely);
}

void Waiter::sleep_on_network() {
  std::array<pollfd, 3> fds{};
  nfds_t count = 0;
  fds[count++] = {node_.doorbell_fd(), POLLIN, 0};
  if (monitor_.fd() >= 0) fds[count++] = {monitor_.fd(), POLLIN, 0};
  if (network_->event_fd() >= 0) fds[count++] = {network_->event_fd(), POLLIN, 0};
  poll(fds.data(), count, static_cast<int>(longest_sleep * 1e3));
}

}  // namespace epccl::runtime
