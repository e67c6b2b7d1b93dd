// Memory that peers can map, and registration.
#include <algorithm>
#include <functional>
#include <map>
#include <mutex>

#include "api/handles/arguments.hpp"
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"
#include "base/per_process.hpp"
#include "base/settings.hpp"
#include "device/gpus.hpp"
#include "device/host/host_memory.hpp"

namespace epccl::api {
namespace {

/// Registrations that were made and not yet undone; a handle is the number of its entry.
struct Registrations {
  std::mutex mutex;
  std::map<uintptr_t, epcclComm_t> by_handle;
  uintptr_t next = 1;
  size_t swept_at = 64;

  /// Now and then: drops those of communicators that are gone, which nobody can undo any more.
  void sweep() {
    if (by_handle.size() < swept_at) return;
    std::erase_if(by_handle, [](const auto& entry) { return !find_handle(entry.second).ok(); });
    swept_at = std::max<size_t>(64, 2 * by_handle.size());
  }
};

Registrations& registrations() {
  static PerProcess<Registrations> instance;
  return *instance;
}

/// Where EPCCL_DEVICE says cuda: the calling thread's GPU, or the first.
Result<device::Device*> memory_device() {
  const std::string wish = settings::get("EPCCL_DEVICE");
  if (wish == "cuda") return device::cuda_device(device::current_cuda_device().value_or(0));
  if (wish == "auto" || wish == "host") return &device::host_device();
  return error(Code::invalid_argument, "EPCCL_DEVICE=\"{}\" is unknown: auto, host or cuda", wish);
}

Result<device::Device*> device_of(int number) {
  if (number < EPCCL_NO_GPU)
    return error(Code::invalid_argument, "device {} is no GPU's number, EPCCL_CURRENT_GPU or EPCCL_NO_GPU",
                 number);
  if (number == EPCCL_NO_GPU) return &device::host_device();
  return device::cuda_device(number == EPCCL_CURRENT_GPU ? device::current_cuda_device().value_or(0)
                                                         : number);
}

Status allocate(void** ptr, size_t size, const std::function<Result<device::Device*>()>& find_device) {
  if (ptr == nullptr) return {Code::invalid_argument, "ptr is NULL"};
  *ptr = nullptr;
  EPCCL_ASSIGN(device::Device * device, find_device());
  if (size == 0) return {};
  EPCCL_ASSIGN(*ptr, device->allocate(device::MemoryKind::shareable, size));
  return {};
}

Status release(void* ptr) {
  if (ptr == nullptr) return {};
  const auto memory = device::cuda_possible() ? device::cuda_memory_at(ptr) : std::nullopt;
  if (!memory) return device::free_window(ptr);
  EPCCL_ASSIGN(device::Device * device, device::cuda_device(memory->ordinal));
  return device->free(ptr);
}

Status add_registration(epcclComm_t comm, const void* buffer, size_t size, const char* what, void** handle) {
  if (handle != nullptr) *handle = nullptr;
  EPCCL_ASSIGN(const CommPtr communicator, find_usable_communicator(comm));
  if (handle == nullptr) return error(Code::invalid_argument, "{} is NULL", what);
  EPCCL_TRY(check_buffer("buff", buffer, size));
  const std::lock_guard lock(registrations().mutex);
  registrations().sweep();
  const uintptr_t key = registrations().next++;
  registrations().by_handle[key] = comm;
  *handle = reinterpret_cast<void*>(key);  // NOLINT(performance-no-int-to-ptr): an opaque number
  return {};
}

bool is_registration(epcclComm_t comm, const void* handle) {
  const std::lock_guard lock(registrations().mutex);
  const auto it = registrations().by_handle.find(reinterpret_cast<uintptr_t>(handle));
  return it != registrations().by_handle.end() && it->second == comm;
}

Status remove_registration(epcclComm_t comm, const void* handle) {
  EPCCL_ASSIGN(const CommPtr communicator, find_communicator(comm));
  const std::lock_guard lock(registrations().mutex);
  const auto it = registrations().by_handle.find(reinterpret_cast<uintptr_t>(handle));
  if (it == registrations().by_handle.end() || it->second != comm)
    return error(Code::invalid_argument, "rank {}: {} is not a registration of this communicator",
                 communicator->rank(), handle);
  registrations().by_handle.erase(it);
  return {};
}

Status add_window(epcclComm_t comm, const void* buffer, size_t size, epcclWindow_t* window, int flags) {
  if (window != nullptr) *window = nullptr;
  if (flags != EPCCL_WIN_DEFAULT && flags != EPCCL_WIN_COLL_SYMMETRIC)
    return error(Code::invalid_argument,
                 "winFlags {} is neither EPCCL_WIN_DEFAULT nor EPCCL_WIN_COLL_SYMMETRIC", flags);
  void* handle = nullptr;
  EPCCL_TRY(add_registration(comm, buffer, size, "win", window != nullptr ? &handle : nullptr));
  *window = static_cast<epcclWindow_t>(handle);
  return {};
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclMemAlloc(void** ptr, size_t size) {
  return guarded([&] { return allocate(ptr, size, memory_device); });
}

epcclResult_t epcclMemAllocOn(void** ptr, size_t size, int device) {
  return guarded([&] { return allocate(ptr, size, [&] { return device_of(device); }); });
}

epcclResult_t epcclMemFree(void* ptr) {
  return guarded([&] { return release(ptr); });
}

epcclResult_t epcclCommRegister(epcclComm_t comm, void* buff, size_t size, void** handle) {
  return guarded([&] { return add_registration(comm, buff, size, "handle", handle); });
}

epcclResult_t epcclCommDeregister(epcclComm_t comm, void* handle) {
  return guarded([&] { return remove_registration(comm, handle); });
}

int epcclIsRegistration(epcclComm_t comm, const void* handle) {
  return guarded_or(0, [&] { return is_registration(comm, handle) ? 1 : 0; });
}

epcclResult_t epcclCommWindowRegister(epcclComm_t comm, void* buff, size_t size, epcclWindow_t* win,
                                      int winFlags) {
  return guarded([&] { return add_window(comm, buff, size, win, winFlags); });
}

epcclResult_t epcclCommWindowDeregister(epcclComm_t comm, epcclWindow_t win) {
  return guarded([&] { return remove_registration(comm, win); });
}
