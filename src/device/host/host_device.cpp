#include "device/host/host_device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "base/fork_safe.hpp"
#include "base/never_destroyed.hpp"
#include "base/per_process.hpp"
#include "device/host/host_engines.hpp"
#include "device/host/host_memory.hpp"
#include "device/host/host_queue.hpp"

namespace epccl::device {
namespace {

enum HandleForm : uint8_t { window = 1, address_of_process = 2 };

class MappedWindow : public MappedMemory {
 public:
  MappedWindow(std::byte* base, const WindowRef& ref) : base_(base), ref_(ref) {}
  MappedWindow(const MappedWindow&) = delete;
  MappedWindow& operator=(const MappedWindow&) = delete;
  ~MappedWindow() override { munmap(base_, ref_.size); }
  std::byte* data() const override { return base_ + ref_.offset; }
  uint64_t bytes() const override { return ref_.size - ref_.offset; }

 private:
  std::byte* const base_;
  const WindowRef ref_;
};

class OwnMemory : public MappedMemory {
 public:
  OwnMemory(std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data() const override { return data_; }
  uint64_t bytes() const override { return bytes_; }

 private:
  std::byte* const data_;
  const uint64_t bytes_;
};

/// Allocations that peers cannot map.
struct PlainMemory {
  ForkSafe<std::mutex> mutex;
  std::unordered_map<void*, uint64_t> sizes;
};

PlainMemory& plain_memory() {
  static NeverDestroyed<PlainMemory> instance;
  return *instance;
}

/// A forked child has none of the queues that post, and none of the waiting.
struct Listeners {
  struct Listener {
    uint64_t bytes = 0;
    HostDevice::Posted posted;
  };
  std::shared_mutex mutex;
  std::map<uintptr_t, Listener> by_address;
};

Listeners& listeners() {
  static PerProcess<Listeners> instance;
  return *instance;
}

}  // namespace

std::string HostDevice::description() const {
  const auto limits = HostEngines::configured();
  if (!limits.ok()) return "host";
  return fmt::format("host, {} copy engine{}{}", limits->copy_engines, limits->copy_engines == 1 ? "" : "s",
                     limits->bytes_per_second > 0
                         ? fmt::format(" of {:g} GB/s", limits->bytes_per_second / 1e9)
                         : std::string());
}

int HostDevice::copy_engines() const {
  const auto limits = HostEngines::configured();
  return limits.ok() ? limits->copy_engines : 1;
}

Result<void*> HostDevice::allocate(MemoryKind kind, uint64_t bytes) {
  if (bytes == 0) return error(Code::invalid_argument, "an allocation of 0 bytes");
  if (kind == MemoryKind::shareable) return allocate_window(bytes);
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return system_error(errno, fmt::format("out of host memory: {} bytes", bytes));
  const std::lock_guard lock(plain_memory().mutex);
  plain_memory().sizes[address] = bytes;
  return address;
}

Status HostDevice::free(void* address) {
  std::unique_lock lock(plain_memory().mutex);
  const auto plain = plain_memory().sizes.extract(address);
  lock.unlock();
  if (plain.empty()) return free_window(address);
  munmap(address, plain.mapped());
  return {};
}

std::optional<MemoryInfo> HostDevice::info(const void* address) const {
  if (address == nullptr) return std::nullopt;
  MemoryInfo info;
  if (const auto found = find_window(address, 1)) {
    info.shareable = true;
    info.base = reinterpret_cast<uint64_t>(address) - found->offset;
    info.size = found->size;
  }
  return info;
}

Result<MemoryHandle> HostDevice::export_memory(const void* address, uint64_t bytes,
                                               const std::vector<pid_t>* /*readers*/) const {
  MemoryHandle handle;
  handle.pid = getpid();
  if (const auto found = find_window(address, bytes)) {
    handle.form = window;
    handle.base = reinterpret_cast<uint64_t>(address) - found->offset;
    handle.size = found->size;
    handle.offset = found->offset;
    handle.generation = found->inode;
    static_assert(sizeof *found <= sizeof handle.opaque);
    std::memcpy(handle.opaque.data(), &*found, sizeof *found);
    return handle;
  }
  // Threads of this process can use it all the same.
  handle.form = address_of_process;
  handle.base = reinterpret_cast<uint64_t>(address);
  handle.size = bytes;
  return handle;
}

Result<std::unique_ptr<MappedMemory>> HostDevice::import_memory(const MemoryHandle& handle) {
  if (handle.device != DeviceKind::host)
    return error(Code::invalid_argument, "a handle of {} memory cannot be mapped by the host",
                 to_string(handle.device));
  if (handle.pid == getpid()) {
    auto* base = reinterpret_cast<std::byte*>(handle.base);  // NOLINT(performance-no-int-to-ptr)
    return std::unique_ptr<MappedMemory>(
        std::make_unique<OwnMemory>(base + handle.offset, handle.size - handle.offset));
  }
  if (handle.form != window)
    return error(Code::invalid_argument,
                 "{} bytes at {:#x} of process {} are not of epcclMemAlloc: another process cannot map them",
                 handle.size, handle.base, handle.pid);
  WindowRef ref;
  std::memcpy(&ref, handle.opaque.data(), sizeof ref);
  EPCCL_ASSIGN(std::byte * base, map_window(ref, Pages::as_touched));
  return std::unique_ptr<MappedMemory>(std::make_unique<MappedWindow>(base, ref));
}

Status HostDevice::make_words_visible(void* /*memory*/, uint64_t /*bytes*/) {
  return {};
}

void HostDevice::hide_words(void* memory, std::shared_ptr<const void> /*mapping*/) {
  Listeners& all = listeners();
  const std::unique_lock lock(all.mutex);
  all.by_address.erase(reinterpret_cast<uintptr_t>(memory));
}

void HostDevice::tell_of_posts(void* memory, uint64_t bytes, Posted posted) {
  Listeners& all = listeners();
  const std::unique_lock lock(all.mutex);
  all.by_address[reinterpret_cast<uintptr_t>(memory)] = {bytes, std::move(posted)};
}

void HostDevice::told(const SignalWord& word) const {
  const auto address = reinterpret_cast<uintptr_t>(&word);
  Listeners& all = listeners();
  const std::shared_lock lock(all.mutex);
  auto it = all.by_address.upper_bound(address);
  if (it == all.by_address.begin()) return;
  --it;
  if (address - it->first < it->second.bytes) it->second.posted(word);
}

Result<std::unique_ptr<Queue>> HostDevice::make_queue(QueueKind kind) {
  EPCCL_ASSIGN(auto engines, HostEngines::shared());
  return std::unique_ptr<Queue>(std::make_unique<HostQueue>(std::move(engines), kind));
}

Result<std::unique_ptr<Queue>> HostDevice::borrow_stream(void* stream) {
  return borrow_host_stream(stream);
}

Result<std::unique_ptr<QueueEvent>> HostDevice::make_event() {
  return std::unique_ptr<QueueEvent>(std::make_unique<HostQueueEvent>());
}

HostDevice& the_host() {
  static NeverDestroyed<HostDevice> device;
  return *device;
}

Device& host_device() {
  return the_host();
}

Status Queue::post_after(std::span<const WordValue> waits, std::span<const WordPost> posts) {
  for (const WordValue& each : waits) EPCCL_TRY(wait(*each.word, each.at_least));
  for (const WordPost& each : posts) EPCCL_TRY(post(*each.word, each.value));
  return {};
}

Status Queue::keep_in_graph(std::shared_ptr<const void> /*object*/) {
  return {Code::invalid_usage, "this queue's work is not being captured into a graph"};
}

Result<LentMemory> Device::lend(const void* /*address*/, uint64_t /*bytes*/) const {
  return error(Code::invalid_usage, "memory of the {} device is not lent to others", to_string(kind()));
}

const char* to_string(DeviceKind kind) {
  return kind == DeviceKind::host ? "host" : "cuda";
}

}  // namespace epccl::device
