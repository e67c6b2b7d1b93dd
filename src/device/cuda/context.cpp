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

// Ranks on parts of one GPU that are kept apart (MIG) cannot map each other's memory, so they do not ask.
uint64_t Context::place() const {
  const auto part = [this](CUdevice_attribute which) {
    return static_cast<uint64_t>(static_cast<uint32_t>(attribute_or_zero(which)));
  };
  constexpr int domain_shift = 32, bus_shift = 8;
  return part(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) << domain_shift |
         part(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) << bus_shift | part(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
}

CurrentContext::CurrentContext(const Context& context)
    : context_(context), status_(context.call(context.driver().context_push, context.handle())) {
  if (status_.ok()) context.driver().exchange_capture_mode(&mode_);
}

CurrentContext::~CurrentContext() {
  if (!status_.ok()) return;
  context_.driver().exchange_capture_mode(&mode_);
  CUcontext popped = nullptr;
  context_.driver().context_pop(&popped);
}

}  // namespace epccl::device::cuda
