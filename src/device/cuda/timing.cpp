#include "device/cuda/timing.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace epccl::device::cuda {

StreamTimes::~StreamTimes() {
  const CurrentContext current(context_);
  for (CUevent event : events_) context_.driver().event_destroy(event);
}

// Events that are recorded anew belong to what they were recorded last: work that still runs does not mind.
void StreamTimes::forget() {
  timed_.clear();
  used_ = 0;
  failure_ = {};
}

Result<CUevent> StreamTimes::mark(CUstream stream) {
  if (used_ == events_.size()) {
    CUevent made = nullptr;
    EPCCL_TRY(context_.call(context_.driver().event_create, &made, static_cast<unsigned>(CU_EVENT_DEFAULT)));
    events_.push_back(made);
  }
  CUevent event = events_[used_++];
  EPCCL_TRY(context_.call(context_.driver().event_record, event, stream));
  return event;
}

void StreamTimes::begin(WorkKind kind, CUstream stream) {
  auto event = mark(stream);
  if (!event.ok() && failure_.ok()) failure_ = event.status();
  timed_.push_back({kind, event.ok() ? *event : nullptr, nullptr});
}

void StreamTimes::end(CUstream stream) {
  auto event = mark(stream);
  if (!event.ok() && failure_.ok()) failure_ = event.status();
  timed_.back().end = event.ok() ? *event : nullptr;
  last_ = stream;
}

Status StreamTimes::wait_for(CUevent event) const {
  for (;;) {
    const CUresult result = context_.driver().event_query(event);
    if (result == CUDA_SUCCESS) return {};
    if (result != CUDA_ERROR_NOT_READY)
      return driver_error(context_.driver(), context_.driver().event_query.name, result, context_.ordinal());
    sched_yield();
  }
}

Result<double> StreamTimes::before(CUevent event, CUevent later) const {
  constexpr double per_millisecond = 1e-3;
  float milliseconds = 0;
  EPCCL_TRY(context_.call(context_.driver().elapsed_time, &milliseconds, event, later));
  return per_millisecond * static_cast<double>(milliseconds);
}

// What the host knows best is the event that it waited for the least.
Result<StreamTimes::Anchor> StreamTimes::anchor() {
  constexpr int tries = 4;
  Anchor best;
  double least = 0;
  for (int i = 0; i < tries; ++i) {
    const double asked = now_seconds();
    EPCCL_ASSIGN(CUevent event, mark(last_));
    EPCCL_TRY(wait_for(event));
    const double waited = now_seconds() - asked;
    if (best.event != nullptr && waited >= least) continue;
    least = waited;
    best = {event, asked + waited / 2};
  }
  return best;
}

Status StreamTimes::collect(std::vector<WorkSpan>& spans) {
  const std::vector<Timed> timed = std::exchange(timed_, {});
  EPCCL_TRY(std::exchange(failure_, {}));
  if (timed.empty()) return {};
  EPCCL_CURRENT(context_);
  for (const Timed& each : timed) EPCCL_TRY(wait_for(each.end));
  EPCCL_ASSIGN(const Anchor anchor, this->anchor());
  for (const Timed& each : timed) {
    EPCCL_ASSIGN(const double begun, before(each.begin, anchor.event));
    EPCCL_ASSIGN(const double ended, before(each.end, anchor.event));
    spans.push_back({each.kind, anchor.at - begun, anchor.at - ended});
  }
  used_ = 0;
  return {};
}

void TimedOperation::begin(WorkKind kind) {
  const CurrentContext current(context_);
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = context_.driver().stream_is_capturing(stream_, &capture);
  // What is recorded now runs later, and what spoils a capture is not for this to tell.
  if (asked != CUDA_SUCCESS || capture != CU_STREAM_CAPTURE_STATUS_NONE) return;
  auto& times = WorkTimes::current()->on_device(&context_, [this]() -> std::unique_ptr<WorkTimes::OnDevice> {
    return std::make_unique<StreamTimes>(context_);
  });
  times_ = &static_cast<StreamTimes&>(times);
  times_->begin(kind, stream_);
}

void TimedOperation::end() {
  const CurrentContext current(context_);
  times_->end(stream_);
}

}  // namespace epccl::device::cuda
