#include "runtime/executor/failure_monitor.hpp"

#include <poll.h>

#include <algorithm>

#include "base/caught.hpp"
#include "base/clock.hpp"

namespace epccl::runtime {
namespace {

constexpr double light_check_period = 1e-3;  // of the control line, between short calls

Status status_of(const Notice& notice) {
  return {notice.kind == Notice::Kind::mismatch ? Code::invalid_usage : Code::remote_error, notice.reason,
          notice.text};
}

}  // namespace

Status FailureMonitor::check() {
  if (const char* why = aborted_.load(std::memory_order_acquire)) return {Code::remote_error, why};
  hear();
  return failure_.ok() ? ended_ : failure_;
}

Status FailureMonitor::check_while_idle() {
  if (const char* why = aborted_.load(std::memory_order_acquire)) return {Code::remote_error, why};
  hear();
  return failure_;
}

void FailureMonitor::hear() {
  while (auto notice = bootstrap_.poll_notice()) {
    note(*notice);
    Status& its = notice->kind == Notice::Kind::ended ? ended_ : failure_;
    if (its.ok()) its = status_of(*notice);
  }
}

// Who reads a notice here has to make the others find the failure.
Status FailureMonitor::overhear() {
  if (const char* why = aborted_.load(std::memory_order_acquire)) return {Code::remote_error, why};
  const auto notice = bootstrap_.poll_notice();
  if (!notice) return {};
  note(*notice);
  return status_of(*notice);
}

void FailureMonitor::note(const Notice& notice) {
  if (notice.kind == Notice::Kind::mismatch) return;
  const std::lock_guard lock(mutex_);
  const bool is_known = std::ranges::any_of(
      lost_, [&](const Notice& known) { return known.kind == notice.kind && known.rank == notice.rank; });
  if (!is_known) lost_.push_back(notice);
}

std::string FailureMonitor::lost(std::span<const int> ranks, bool or_failed) const {
  const std::lock_guard lock(mutex_);
  for (const Notice& notice : lost_) {
    const bool is_member = std::ranges::find(ranks, notice.rank) != ranks.end();
    const bool is_hub = notice.kind == Notice::Kind::hub_lost;  // and the death of its first rank
    const bool is_gone = is_hub || notice.kind == Notice::Kind::died || notice.kind == Notice::Kind::ended;
    if ((is_gone && is_member) || (or_failed && (is_member || is_hub))) return notice.text;
  }
  return "";
}

void FailureMonitor::note_lost(std::span<const int> ranks) {
  const std::lock_guard lock(mutex_);
  lost_otherwise_.insert(ranks.begin(), ranks.end());
}

std::set<int> FailureMonitor::lost_ranks() const {
  const std::lock_guard lock(mutex_);
  std::set<int> ranks = lost_otherwise_;
  for (const Notice& notice : lost_)
    if (notice.rank >= 0 && notice.kind != Notice::Kind::failed) ranks.insert(notice.rank);
  return ranks;
}

Status FailureMonitor::check_lightly() {
  const double now = coarse_now_seconds();
  if (now < next_look_ && aborted_.load(std::memory_order_acquire) == nullptr) {
    if (failure_.ok() && ended_.ok()) return {};  // as a rule; without copying a Status
    return failure_.ok() ? ended_ : failure_;
  }
  next_look_ = now + light_check_period;
  return check();
}

Status FailureMonitor::explain(Status status) {
  constexpr double patience = 1.0;
  const double until = has_waited_in_vain_ ? 0 : now_seconds() + patience;
  for (;;) {
    if (Status known = check(); !known.ok()) return known;
    if (now_seconds() >= until) break;
    pollfd line{fd(), POLLIN, 0};
    poll(&line, 1, 10);
  }
  has_waited_in_vain_ = true;
  return status;
}

// Whatever is thrown on the way, what waits for this rank has to be let go.
Status FailureMonitor::tell(Status status) {
  if (listener_ == nullptr) return status;
  return with_or_without_text([&] { return listener_(std::move(status)); });
}

}  // namespace epccl::runtime
