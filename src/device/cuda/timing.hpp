// When the work of streams begins and ends, told by events around it, where the calling thread measures (device/work_times.hpp).
//
//   stream   event, copy, event, kernel ...                     the host's clock is read around another event, the latest:
//                                          |clock|, event       by how much earlier an event was the driver tells
#pragma once

#include <memory>
#include <vector>

#include "device/cuda/context.hpp"
#include "device/work_times.hpp"

namespace epccl::device::cuda {

/// Of one GPU. Its events are kept until it ends.
class StreamTimes : public WorkTimes::OnDevice {
 public:
  explicit StreamTimes(const Context& context) : context_(context) {}
  StreamTimes(const StreamTimes&) = delete;
  StreamTimes& operator=(const StreamTimes&) = delete;
  ~StreamTimes() override;

  Status collect(std::vector<WorkSpan>& spans) override;
  void forget() override;

  /// Around an operation; the context is current. What cannot be timed is told by collect().
  void begin(WorkKind kind, CUstream stream);
  void end(CUstream stream);

 private:
  struct Timed {
    WorkKind kind;
    CUevent begin, end;
  };
  Result<CUevent> mark(CUstream stream);
  Status wait_for(CUevent event) const;
  Result<double> before(CUevent event, CUevent later) const;
  struct Anchor {
    CUevent event = nullptr;
    double at = 0;
  };
  Result<Anchor> anchor();

  const Context& context_;
  CUstream last_ = nullptr;  // what was timed last
  std::vector<Timed> timed_;
  std::vector<CUevent> events_;  // all
  size_t used_ = 0;              // so many of them, since collect()
  Status failure_;
};

/// Times the operation of a scope, if the calling thread measures, and the stream is not captured.
class TimedOperation {
 public:
  TimedOperation(const Context& context, CUstream stream, WorkKind kind)
      : context_(context), stream_(stream) {
    if (WorkTimes::current() != nullptr) begin(kind);
  }
  TimedOperation(const TimedOperation&) = delete;
  TimedOperation& operator=(const TimedOperation&) = delete;
  ~TimedOperation() {
    if (times_ != nullptr) end();
  }

 private:
  void begin(WorkKind kind);
  void end();

  const Context& context_;
  const CUstream stream_;
  StreamTimes* times_ = nullptr;
};

}  // namespace epccl::device::cuda
