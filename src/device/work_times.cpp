#include "device/work_times.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace epccl::device {
namespace {

// When a device's work was on the host's clock is known as well as the host heard of an event, on a busy machine some milliseconds late.
// But all of it was between the call's begin and its end.
void move_between(double begin, double end, std::vector<WorkSpan>& spans) {
  double first = spans.front().begin, last = spans.front().end;
  for (const WorkSpan& span : spans) {
    first = std::min(first, span.begin);
    last = std::max(last, span.end);
  }
  const double later = std::max(std::min(end - last, 0.0), begin - first);
  for (WorkSpan& span : spans) span = {span.kind, span.begin + later, span.end + later};
}

/// Spans of which each begins behind the end of the one before, as those of one thread do.
bool are_in_order(const std::vector<WorkSpan>& spans) {
  const auto overlap = [](const WorkSpan& earlier, const WorkSpan& later) {
    return later.begin < earlier.end;
  };
  return std::ranges::adjacent_find(spans, overlap) == spans.end();
}

using Seconds = std::array<double, 3>;  // by kind

Seconds sums_of(const std::vector<WorkSpan>& spans, double begin, double end) {
  Seconds seconds{};
  for (const WorkSpan& span : spans)
    seconds[static_cast<size_t>(span.kind)] +=
        std::max(std::min(span.end, end) - std::max(span.begin, begin), 0.0);
  return seconds;
}

Seconds sweep(const std::vector<WorkSpan>& spans, double begin, double end) {
  struct Edge {
    double at;
    WorkKind kind;
    int change;
  };
  std::vector<Edge> edges;
  for (const WorkSpan& span : spans) {
    const double from = std::clamp(span.begin, begin, end), to = std::clamp(span.end, begin, end);
    if (from >= to) continue;
    edges.push_back({from, span.kind, 1});
    edges.push_back({to, span.kind, -1});
  }
  std::ranges::sort(edges, {}, &Edge::at);
  std::array<int, 3> running{};
  Seconds seconds{};
  double since = begin;
  for (const Edge& edge : edges) {
    const auto first = std::ranges::find_if(running, [](int count) { return count > 0; });
    if (first != running.end()) seconds[static_cast<size_t>(first - running.begin())] += edge.at - since;
    since = edge.at;
    running[static_cast<size_t>(edge.kind)] += edge.change;
  }
  return seconds;
}

}  // namespace

TimeSplit split_of(const std::vector<WorkSpan>& spans, double begin, double end) {
  const Seconds seconds = are_in_order(spans) ? sums_of(spans, begin, end) : sweep(spans, begin, end);
  return {end - begin, seconds[0], seconds[1], seconds[2]};
}

void WorkTimes::restart() {
  const std::lock_guard lock(mutex_);
  spans_.clear();
  for (const Known& known : on_devices_) known.spans->forget();
  begin_ = now_seconds();
}

void WorkTimes::add(WorkKind kind, double begin, double end) {
  const std::lock_guard lock(mutex_);
  spans_.push_back({kind, begin, end});
}

Result<TimeSplit> WorkTimes::split() {
  const double end = now_seconds();
  if (on_devices_.empty()) {
    const std::lock_guard lock(mutex_);
    return split_of(spans_, begin_, end);
  }
  std::vector<WorkSpan> spans;
  for (const Known& known : on_devices_) {
    std::vector<WorkSpan> of_device;
    EPCCL_TRY(known.spans->collect(of_device));
    if (!of_device.empty()) move_between(begin_, end, of_device);
    spans.insert(spans.end(), of_device.begin(), of_device.end());
  }
  const std::lock_guard lock(mutex_);
  spans.insert(spans.end(), spans_.begin(), spans_.end());
  return split_of(spans, begin_, end);
}

WorkTimes::Scope::Scope(std::shared_ptr<WorkTimes> times)
    : times_(std::move(times)), before_(std::exchange(current_, times_.get())) {
  times_->outer_ = before_;
}

WorkTimes::Scope::~Scope() {
  times_->outer_ = nullptr;
  current_ = before_;
}

}  // namespace epccl::device
