// A GPU's primary context, made current for the calls of one scope, and calls whose errors name the function and the GPU.
#pragma once

#include <string>

#include "device/cuda/driver.hpp"

namespace epccl::device::cuda {

class Context {
 public:
  /// Retains the primary context of GPU `ordinal`, for good.
  static Result<Context> retain(const Driver& driver, int ordinal);

  const Driver& driver() const { return *driver_; }
  int ordinal() const { return ordinal_; }
  CUdevice device() const { return device_; }
  CUcontext handle() const { return context_; }

  /// Calls a function of the driver; the context must be current where that function wants it.
  template <typename Function, typename... Args>
  Status call(const Symbol<Function>& symbol, Args... args) const {
    CUresult result = CUDA_SUCCESS;
    return call_for(result, symbol, args...);
  }
  /// The same, for callers who know what to do about some results.
  template <typename Function, typename... Args>
  Status call_for(CUresult& result, const Symbol<Function>& symbol, Args... args) const {
    result = CUDA_ERROR_NOT_FOUND;
    if (!symbol)
      return error(Code::device_error, "the CUDA driver (CUDA {}) is too old, it lacks {}",
                   version_text(driver_->version), symbol.name);
    result = symbol(args...);
    if (result == CUDA_SUCCESS) return {};
    return driver_error(*driver_, symbol.name, result, ordinal_);
  }

  Result<int> attribute(CUdevice_attribute attribute) const;
  /// Where the GPU is in the machine: a number that all processes find alike, and no other GPU has; 0: not known.
  uint64_t place() const;
  /// As attribute(); 0 where the driver does not know it.
  int attribute_or_zero(CUdevice_attribute attribute) const;

 private:
  Context(const Driver& driver, int ordinal) : driver_(&driver), ordinal_(ordinal) {}

  const Driver* driver_;
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// Makes the context the calling thread's while it lives, and lets this thread do what a capture elsewhere in the process
/// would forbid (allocating, asking): none of it is work of the captured stream.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context);
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext();

  const Status& status() const { return status_; }

 private:
  const Context& context_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  Status status_;
};

/// `EPCCL_CURRENT(context)`: current until the end of the scope, or the error is returned.
#define EPCCL_CURRENT(context)                                         \
  const ::epccl::device::cuda::CurrentContext epccl_current_(context); \
  if (!epccl_current_.status().ok()) return epccl_current_.status()

}  // namespace epccl::device::cuda
