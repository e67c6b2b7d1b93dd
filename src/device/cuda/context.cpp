#include "device/cuda/context.hpp"

namespace epccl::device::cuda {

Result<Context> Context::retain(const Driver& driver, int ordinal) {
  Context context(driver, ordinal);
  EPCCL_TRY(context.call(driver.device_get, &context.device_, ordinal));
  EPCCL_TRY(context.call(driver.primary_context_retain, &context.context_, context.device_));
  return context;
}

Result<int> Context::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  EPCCL_TRY(call(driver_->device_attribute, &value, attribute, device_));
  return value;
}

int Context::attribute_or_zero(CUdevice_attribute which) const {
  const Result<int> value = attribute(which);
  return value.ok() ? *value : 0;
}

CurrentContext::CurrentContext(const Context& context)
    : context_(context), status_(context.call(context.driver().context_push, context.handle())) {
  if (status_.ok()) context.driver().exchange_capture_mode.function(&mode_);
}

CurrentContext::~CurrentContext() {
  if (!status_.ok()) return;
  context_.driver().exchange_capture_mode.function(&mode_);
  CUcontext popped = nullptr;
  context_.driver().context_pop.function(&popped);
}

}  // namespace epccl::device::cuda
