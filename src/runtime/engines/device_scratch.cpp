#include "runtime/engines/device_scratch.hpp"

#include <cstring>
#include <utility>

#include "runtime/engines/kept_memory.hpp"
#include "transports/shm/node_segment.hpp"

namespace epccl::runtime {

const uint64_t DeviceScratch::near_bytes = transports::node_counters * sizeof(device::SignalWord);

Status DeviceScratch::make(uint64_t call_bytes, uint64_t calls) {
  call_bytes_ = call_bytes;
  calls_ = calls;
  EPCCL_ASSIGN(void* memory, device_.allocate(device::MemoryKind::shareable, bytes_with_near_words()));
  memory_ = {static_cast<std::byte*>(memory),
             [&device = device_](std::byte* made) { static_cast<void>(device.free(made)); }};
  KeptMemory::add(memory, memory_);
  return {};
}

Status DeviceScratch::clear_near_words(device::Queue& queue) {
  EPCCL_TRY(zeros_.reserve(near_bytes));
  std::memset(zeros_.data(), 0, near_bytes);
  EPCCL_ASSIGN(cleared_, device_.make_event());
  const device::CopyWork work{reinterpret_cast<std::byte*>(near_words(data())), zeros_.data(), near_bytes};
  EPCCL_TRY(queue.copy({&work, 1}));
  return queue.record(*cleared_);
}

bool DeviceScratch::has_near_words() {
  if (is_clear_ || cleared_ == nullptr) return is_clear_;
  const auto complete = cleared_->complete();
  return is_clear_ = complete.ok() && *complete;
}

bool DeviceScratch::hold(int local, const void* address, const std::function<bool()>& is_there) {
  auto& held = held_[static_cast<size_t>(local)];
  if (held != nullptr) return true;
  auto found = KeptMemory::at(address);
  if (found != nullptr && is_there()) held = std::move(found);
  return held != nullptr;
}

}  // namespace epccl::runtime
