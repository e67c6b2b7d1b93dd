#include "device/cuda/event.hpp"

namespace epccl::device::cuda {

Result<std::unique_ptr<QueueEvent>> Event::make(const Context& context) {
  EPCCL_CURRENT(context);
  std::unique_ptr<Event> event(new Event(context));  // private constructor
  EPCCL_TRY(context.call(context.driver().event_create, &event->event_,
                         static_cast<unsigned>(CU_EVENT_DISABLE_TIMING)));
  return std::unique_ptr<QueueEvent>(std::move(event));
}

Event::~Event() {
  if (event_ == nullptr) return;
  const CurrentContext current(context_);
  context_.driver().event_destroy(event_);
}

Result<bool> Event::complete() const {
  EPCCL_CURRENT(context_);
  const CUresult result = context_.driver().event_query(event_);
  if (result == CUDA_SUCCESS) return true;
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result == CUDA_ERROR_CAPTURED_EVENT)
    return error(Code::invalid_usage,
                 "the event was recorded into a graph on GPU {}: it is complete in none of its runs",
                 context_.ordinal());
  return driver_error(context_.driver(), context_.driver().event_query.name, result, context_.ordinal());
}

}  // namespace epccl::device::cuda
