// A place in a stream.
#pragma once

#include "device/cuda/context.hpp"
#include "device/device.hpp"

namespace epccl::device::cuda {

class Event : public QueueEvent {
 public:
  static Result<std::unique_ptr<QueueEvent>> make(const Context& context);
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() override;

  Result<bool> complete() const override;
  CUevent handle() const { return event_; }

 private:
  explicit Event(const Context& context) : context_(context) {}

  const Context& context_;
  CUevent event_ = nullptr;
};

}  // namespace epccl::device::cuda
