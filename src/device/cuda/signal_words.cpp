#include "device/cuda/signal_words.hpp"

#include <unistd.h>

#include <mutex>

namespace epccl::device::cuda {

Status SignalWords::add(void* memory, uint64_t bytes) {
  if (!context_.driver().has_signals() ||
      context_.attribute_or_zero(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 0)
    return error(
        Code::device_error,
        "GPU {} or its driver (CUDA {}) cannot write and wait for 64-bit words on a stream, by which ranks "
        "signal each other",
        context_.ordinal(), version_text(context_.driver().version));
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uint64_t>(memory);
  const uint64_t first = start / page * page, end = (start + bytes + page - 1) / page * page;
  const std::lock_guard lock(mutex_);
  Range& range = ranges_[first];
  if (range.uses > 0 && range.end < end)
    return error(Code::invalid_usage, "the words at {} are known already, but only {} of {} bytes", memory,
                 range.end - start, bytes);
  if (range.uses == 0) {
    EPCCL_CURRENT(context_);
    void* pages = reinterpret_cast<void*>(first);  // NOLINT(performance-no-int-to-ptr): rounded to a page
    const CUresult result = context_.driver().host_register.function(
        pages, end - first, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    range.is_registered_here = result == CUDA_SUCCESS;
    Status status;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
      status =
          driver_error(context_.driver(), context_.driver().host_register.name, result, context_.ordinal());
    if (status.ok()) status = context_.call(context_.driver().host_device_pointer, &range.device, pages, 0U);
    if (!status.ok()) {
      if (range.is_registered_here) context_.driver().host_unregister.function(pages);
      ranges_.erase(first);
      return std::move(status).with_context(
          fmt::format("making {} bytes of signal words at {} visible", bytes, memory));
    }
    range.end = end;
  }
  ++range.uses;
  started_[start] = first;
  return {};
}

void SignalWords::remove(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto started = started_.find(reinterpret_cast<uint64_t>(memory));
  if (started == started_.end()) return;
  const auto it = ranges_.find(started->second);
  if (--it->second.uses > 0) return;
  if (it->second.is_registered_here) {
    const CurrentContext current(context_);
    context_.driver().host_unregister.function(
        reinterpret_cast<void*>(it->first));  // NOLINT(performance-no-int-to-ptr)
  }
  ranges_.erase(it);
  started_.erase(started);
}

Result<CUdeviceptr> SignalWords::find(const void* word) const {
  const auto address = reinterpret_cast<uint64_t>(word);
  const std::shared_lock lock(mutex_);
  auto it = ranges_.upper_bound(address);
  if (it != ranges_.begin() && address + sizeof(uint64_t) <= (--it)->second.end)
    return it->second.device + (address - it->first);
  return error(Code::invalid_usage, "the word at {} was not made visible to GPU {}", word,
               context_.ordinal());
}

}  // namespace epccl::device::cuda
