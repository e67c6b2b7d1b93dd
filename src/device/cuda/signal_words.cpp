#include "device/cuda/signal_words.hpp"

#include <unistd.h>

#include <mutex>
#include <utility>

#include "device/held_streams.hpp"

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
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    const auto it = ranges_.find(first);
    return it == ranges_.end() || !it->second.is_changing;
  });
  Range& range = ranges_[first];
  if (range.uses > 0 && range.end < end)
    return error(Code::invalid_usage, "the words at {} are known already, but only {} of {} bytes", memory,
                 range.end - start, bytes);
  if (range.uses == 0) {
    range.is_changing = true;
    lock.unlock();
    Result<Range> made = register_pages(first, end);
    lock.lock();
    if (made.ok())
      range = *made;
    else
      ranges_.erase(first);
    changed_.notify_all();
    if (!made.ok())
      return std::move(made).take_status().with_context(
          fmt::format("making {} bytes of signal words at {} visible", bytes, memory));
  }
  ++range.uses;
  started_[start] = first;
  return {};
}

Result<SignalWords::Range> SignalWords::register_pages(uint64_t first, uint64_t end) const {
  EPCCL_CURRENT(context_);
  const Driver& driver = context_.driver();
  void* pages = reinterpret_cast<void*>(first);  // NOLINT(performance-no-int-to-ptr): rounded to a page
  const CUresult result =
      driver.host_register(pages, static_cast<size_t>(end - first),
                           static_cast<unsigned>(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
    return driver_error(driver, driver.host_register.name, result, context_.ordinal());
  Range range;
  range.end = end;
  range.is_registered_here = result == CUDA_SUCCESS;
  if (Status status = context_.call(driver.host_device_pointer, &range.device, pages, 0U); !status.ok()) {
    if (range.is_registered_here) driver.host_unregister(pages);
    return status;
  }
  return range;
}

void SignalWords::remove(void* memory, std::shared_ptr<const void> mapping) {
  uint64_t first = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto started = started_.find(reinterpret_cast<uint64_t>(memory));
    if (started == started_.end()) return;
    first = started->second;
    Range& range = ranges_.at(first);
    if (--range.uses > 0) return;
    started_.erase(started);
    range.is_changing = true;
  }
  if (mapping == nullptr) return unregister(first);
  HeldStreams::when_none([this, first, mapping = std::move(mapping)] { unregister(first); });
}

void SignalWords::unregister(uint64_t first) {
  bool is_registered_here = false;
  {
    const std::shared_lock lock(mutex_);
    is_registered_here = ranges_.at(first).is_registered_here;
  }
  if (is_registered_here) {
    const CurrentContext current(context_);
    context_.driver().host_unregister(reinterpret_cast<void*>(first));  // NOLINT(performance-no-int-to-ptr)
  }
  const std::lock_guard lock(mutex_);
  ranges_.erase(first);
  changed_.notify_all();
}

Result<CUdeviceptr> SignalWords::find(const void* word) const {
  const auto address = reinterpret_cast<uint64_t>(word);
  const std::shared_lock lock(mutex_);
  auto it = ranges_.upper_bound(address);
  if (it != ranges_.begin() && address + sizeof(uint64_t) <= (--it)->second.end && !it->second.is_changing)
    return it->second.device + (address - it->first);
  return error(Code::invalid_usage, "the word at {} was not made visible to GPU {}", word,
               context_.ordinal());
}

}  // namespace epccl::device::cuda
