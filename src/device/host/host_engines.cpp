#include "device/host/host_engines.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>

#include "base/caught.hpp"
#include "base/clock.hpp"
#include "base/core_mask.hpp"
#include "base/log.hpp"
#include "base/per_process.hpp"
#include "base/settings.hpp"
#include "base/thread.hpp"
#include "device/host/host_copy.hpp"

namespace epccl::device {
namespace {

constexpr const char *engine_cores_setting = "EPCCL_HOST_ENGINE_CORES",
                     *reduction_cores_setting = "EPCCL_HOST_REDUCTION_CORES";
constexpr double yield_seconds = 50e-6;
constexpr double shortest_sleep = 50e-6, longest_sleep = 1e-3;
constexpr uint64_t piece = 256 << 10;         // between two looks at the clock
constexpr uint64_t past_the_cache = 1 << 20;  // a copy this large is no better off in the cache
constexpr double made_up_for = 1e-3;
constexpr double unnoticed = 100e-6;  // less than this ahead of its bandwidth an engine does not sleep

void sleep_until(double when) {
  for (double left = when - now_seconds(); left > 0; left = when - now_seconds())
    std::this_thread::sleep_for(std::chrono::duration<double>(left));
}

/// "1" or "2,3".
Result<std::vector<int>> cores_of(const char* setting) {
  const std::string text = settings::get(setting);
  std::vector<int> cores;
  for (const char* at = text.c_str(); *at != 0;) {
    char* end = nullptr;
    const long core = std::strtol(at, &end, 10);
    if (end == at || core < 0 || core >= most_cores || (*end != ',' && *end != 0))
      return error(Code::invalid_argument, "{}=\"{}\": want numbers of cores, as 2,3", setting, text);
    cores.push_back(static_cast<int>(core));
    at = *end == 0 ? end : end + 1;
  }
  return cores;
}

// Nodes may have different cores: where none of these is there, the thread runs where it is.
void go_to(const std::vector<int>& cores, const char* setting) {
  if (cores.empty()) return;
  if (!CoreMask(cores).apply())
    log::warn(log::init, -1, "{}={} has no core that this process may use ({}): the setting is ignored",
              setting, settings::get(setting), std::strerror(errno));
}

/// The line has another first item.
void look_at_first(WorkLine& line) {
  if (!line.items.empty() && line.items.front().times != nullptr) line.first_since = now_seconds();
}

/// What the item's time goes to; nothing: it takes none, or waits for this rank's own work.
std::optional<WorkKind> kind_of(const WorkItem& item) {
  if (std::holds_alternative<CopyItem>(item)) return WorkKind::copy;
  if (std::holds_alternative<ReduceItem>(item)) return WorkKind::kernel;
  if (std::holds_alternative<WaitItem>(item)) return WorkKind::signal;
  return std::nullopt;
}

/// A wait has been going on since it was the first of its queue.
void tell(const QueuedItem& done, double first_since, double begun) {
  if (const auto kind = kind_of(done.item))
    done.times->add(*kind, *kind == WorkKind::signal ? first_since : begun, now_seconds());
}

/// Whether the item can be done now.
bool can_go_on(const WorkItem& item) {
  if (const auto* wait = std::get_if<WaitItem>(&item))
    return wait->word->load(std::memory_order_acquire) >= wait->value;
  if (const auto* wait = std::get_if<WaitMarkItem>(&item))
    return wait->mark->reached.load(std::memory_order_acquire);
  return true;
}

}  // namespace

Result<HostEngines::Limits> HostEngines::configured() {
  Limits limits;
  EPCCL_ASSIGN(const int64_t engines, settings::get_integer("EPCCL_HOST_ENGINES"));
  limits.copy_engines = static_cast<int>(engines);
  EPCCL_ASSIGN(limits.engine_cores, cores_of(engine_cores_setting));
  EPCCL_ASSIGN(limits.reduction_cores, cores_of(reduction_cores_setting));
  const std::string rate = settings::get("EPCCL_HOST_ENGINE_GBPS");
  if (rate.empty()) return limits;
  char* end = nullptr;
  limits.bytes_per_second = 1e9 * std::strtod(rate.c_str(), &end);
  if (*end != 0 || !(limits.bytes_per_second > 0))
    return error(Code::invalid_argument, "EPCCL_HOST_ENGINE_GBPS=\"{}\" is no number above 0", rate);
  return limits;
}

Result<std::shared_ptr<HostEngines>> HostEngines::shared() {
  struct Known {
    std::mutex mutex;
    std::weak_ptr<HostEngines> engines;
  };
  static PerProcess<Known> known;
  const std::lock_guard lock(known->mutex);
  if (auto engines = known->engines.lock()) return engines;
  EPCCL_ASSIGN(const Limits limits, configured());
  auto engines = std::make_shared<HostEngines>(limits);
  known->engines = engines;
  return engines;
}

HostEngines::HostEngines(const Limits& limits) : limits_(limits) {
  try {
    for (int i = 0; i < limits.copy_engines; ++i)
      threads_.push_back(start_thread([this] { work(QueueKind::copy_engine); }));
    threads_.push_back(start_thread([this] { work(QueueKind::compute); }));
  } catch (...) {
    stop();
    throw;
  }
}

HostEngines::~HostEngines() {
  stop();
}

void HostEngines::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<WorkLine> HostEngines::add(QueueKind kind) {
  auto line = std::make_shared<WorkLine>();
  line->kind = kind;
  const std::lock_guard lock(mutex_);
  lines_.push_back(line);
  return line;
}

void HostEngines::remove(const std::shared_ptr<WorkLine>& line) {
  std::unique_lock lock(mutex_);
  line->drained.wait(lock, [&] { return line->items.empty() && !line->running; });
  std::erase(lines_, line);
}

void HostEngines::append(WorkLine& line, WorkItem item) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = line.items.empty();
    WorkTimes* const times = WorkTimes::current();
    line.items.push_back({std::move(item), times != nullptr ? times->shared_from_this() : nullptr});
    if (first) look_at_first(line);
  }
  // Who runs the line goes on with it by itself.
  if (first) changed_.notify_all();
}

Status HostEngines::drain(WorkLine& line) {
  std::unique_lock lock(mutex_);
  line.drained.wait(lock, [&] { return line.items.empty() && !line.running; });
  return line.failure;
}

bool HostEngines::idle(const WorkLine& line) {
  const std::lock_guard lock(mutex_);
  return line.items.empty() && !line.running;
}

Status HostEngines::failure(const WorkLine& line) {
  const std::lock_guard lock(mutex_);
  return line.failure;
}

// Lines take turns, so that none starves behind another's long copies.
WorkLine* HostEngines::next(QueueKind kind, bool& any_waits) {
  any_waits = false;
  for (size_t i = 0; i < lines_.size(); ++i) {
    const size_t at = (first_ + i) % lines_.size();
    WorkLine& line = *lines_[at];
    if (line.kind != kind || line.running || line.items.empty()) continue;
    if (can_go_on(line.items.front().item)) {
      first_ = at + 1;
      return &line;
    }
    any_waits = true;
  }
  return nullptr;
}

void HostEngines::work(QueueKind kind) {
  const bool copies = kind == QueueKind::copy_engine;
  go_to(copies ? limits_.engine_cores : limits_.reduction_cores,
        copies ? engine_cores_setting : reduction_cores_setting);
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds: its sleeps are short
  Pace pace{kind == QueueKind::copy_engine ? limits_.bytes_per_second : 0, 0};
  double idle_since = 0;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    bool any_waits = false;
    WorkLine* line = next(kind, any_waits);
    if (line == nullptr) {
      if (!any_waits) {
        changed_.wait(lock);
        idle_since = 0;
        continue;
      }
      if (idle_since == 0) idle_since = now_seconds();
      pause(lock, idle_since);
      continue;
    }
    idle_since = 0;
    line->running = true;
    QueuedItem taken = std::move(line->items.front());
    line->items.pop_front();
    const bool failed = !line->failure.ok();
    const double first_since = line->first_since;
    lock.unlock();
    const double begun = taken.times != nullptr ? now_seconds() : 0;
    // What it throws is for who waits for the line: its turn must end.
    Status status = caught([&] { return run(taken.item, failed, pace); });
    if (taken.times != nullptr) tell(taken, first_since, begun);
    const bool others_may_wait =
        std::holds_alternative<MarkItem>(taken.item) || std::holds_alternative<PostItem>(taken.item);
    taken = {};
    lock.lock();
    line->running = false;
    look_at_first(*line);
    if (!status.ok() && line->failure.ok()) line->failure = std::move(status);
    if (line->items.empty()) line->drained.notify_all();
    if (others_may_wait) changed_.notify_all();
  }
}

// Posts of other processes wake nobody here: who waits looks again.
void HostEngines::pause(std::unique_lock<std::mutex>& lock, double idle_since) {
  const double waited = now_seconds() - idle_since;
  if (waited < yield_seconds) {
    lock.unlock();
    sched_yield();
    lock.lock();
    return;
  }
  changed_.wait_for(lock,
                    std::chrono::duration<double>(std::clamp(waited / 8, shortest_sleep, longest_sleep)));
}

Status HostEngines::run(WorkItem& item, bool failed, Pace& pace) {
  if (auto* posted = std::get_if<PostItem>(&item)) {
    post_and_tell(*posted->word, posted->value);
  } else if (auto* wait = std::get_if<WaitItem>(&item)) {
    if (wait->word->load(std::memory_order_acquire) >= released) return released_failure();
  } else if (auto* mark = std::get_if<MarkItem>(&item)) {
    mark->mark->reached.store(true, std::memory_order_release);
  } else if (failed) {
    return {};
  } else if (auto* copies = std::get_if<CopyItem>(&item)) {
    pace.begin();
    for (const CopyWork& work : copies->copies) copy(work, pace);
    pace.settle();
  } else if (auto* sum = std::get_if<ReduceItem>(&item)) {
    reduce(sum->work.reduction, sum->sources, sum->work.final, sum->work.destination, sum->work.elements,
           sum->also);
  }
  return {};
}

void HostEngines::copy(const CopyWork& work, Pace& pace) {
  const bool streaming = work.bytes * work.rows >= past_the_cache;
  for (uint32_t row = 0; row < work.rows; ++row) {
    std::byte* to = work.destination + row * work.destination_stride;
    const std::byte* from = work.source + row * work.source_stride;
    for (uint64_t at = 0; at < work.bytes; at += piece) {
      const uint64_t bytes = std::min(piece, work.bytes - at);
      copy_bytes(to + at, from + at, bytes, streaming);
      pace.moved(bytes);
    }
  }
}

void HostEngines::Pace::begin() {
  free_at = std::max(free_at, now_seconds());
}

void HostEngines::Pace::moved(uint64_t bytes) {
  if (bytes_per_second <= 0) return;
  // What the scheduler took away is made up for, a little of it.
  const double now = now_seconds();
  free_at = std::max(free_at + static_cast<double>(bytes) / bytes_per_second, now - made_up_for);
  if (free_at > now + unnoticed) sleep_until(free_at);
}

void HostEngines::Pace::settle() const {
  if (bytes_per_second > 0) sleep_until(free_at);
}

}  // namespace epccl::device
