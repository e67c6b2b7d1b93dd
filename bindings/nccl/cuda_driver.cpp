#include "cuda_driver.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/nvidia_driver.hpp"
#include "base/settings.hpp"

namespace epccl::nccl {
namespace {

// Of the driver's interface (cuda.h); the numbers are part of its ABI.
using CuResult = int;
constexpr CuResult cuda_success = 0;
constexpr int memory_type_attribute = 2;
constexpr unsigned memory_type_host = 1;
constexpr CuResult invalid_context = 201;
constexpr CuResult capture_implicit = 906;

struct Driver {
  CuResult (*init)(unsigned) = nullptr;
  CuResult (*device_count)(int*) = nullptr;
  CuResult (*pointer_attribute)(void*, int, unsigned long long) = nullptr;
  CuResult (*get_context)(void**) = nullptr;
  CuResult (*push_context)(void*) = nullptr;
  CuResult (*pop_context)(void**) = nullptr;
  CuResult (*is_capturing)(void*, int*) = nullptr;
  CuResult (*get_device)(int*) = nullptr;
};

void* open_driver() {
  constexpr const char* name = "libcuda.so.1";
  if (void* loaded = dlopen(name, RTLD_NOW | RTLD_NOLOAD); loaded != nullptr) return loaded;
  return nvidia_driver_is_there() ? dlopen(name, RTLD_NOW) : nullptr;
}

template <typename Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

std::optional<Driver> load() {
  void* library = open_driver();
  Driver driver;
  if (library == nullptr || !look_up(library, "cuInit", driver.init) ||
      !look_up(library, "cuDeviceGetCount", driver.device_count) ||
      !look_up(library, "cuPointerGetAttribute", driver.pointer_attribute) ||
      !look_up(library, "cuCtxGetCurrent", driver.get_context) ||
      !look_up(library, "cuCtxPushCurrent_v2", driver.push_context) ||
      !look_up(library, "cuCtxPopCurrent_v2", driver.pop_context))
    return std::nullopt;
  look_up(library, "cuStreamIsCapturing", driver.is_capturing);  // a driver without it captures nothing
  look_up(library, "cuCtxGetDevice", driver.get_device);
  return driver;
}

/// Null: there is none. `again`: looked for once more where there was none, since a program may load it later, and the first to ask for it
/// may load the kernel's module. That takes some microseconds, so what every call asks does without.
const Driver* driver(bool again = false) {
  static std::mutex mutex;
  static std::atomic<bool> was_looked_for{false};
  static std::atomic<const Driver*> found{nullptr};
  const Driver* known = found.load(std::memory_order_acquire);
  if (known != nullptr || (!again && was_looked_for.load(std::memory_order_acquire))) return known;
  const std::lock_guard lock(mutex);
  if (found.load() == nullptr) {
    if (const auto loaded = load()) found = new Driver(*loaded);  // NOLINT: for the process's life
    was_looked_for = true;
  }
  return found.load();
}

}  // namespace

bool cuda_possible() {
  return driver() != nullptr;
}

bool cuda_wanted() {
  return driver(true) != nullptr && settings::get("EPCCL_DEVICE") == "auto";
}

bool gpu_present() {
  if (!cuda_wanted()) return false;
  int devices = 0;
  return driver()->init(0) == cuda_success && driver()->device_count(&devices) == cuda_success && devices > 0;
}

Memory memory_of(const void* pointer, void* context) {
  if (pointer == nullptr || !driver()) return Memory::ordinary;
  unsigned type = 0;
  const auto address = static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(pointer));
  CuResult asked = driver()->pointer_attribute(&type, memory_type_attribute, address);
  if (asked == invalid_context && context != nullptr) {
    const WithContext current(context);
    asked = driver()->pointer_attribute(&type, memory_type_attribute, address);
    if (asked == invalid_context) return Memory::device;
  }
  if (asked != cuda_success) return Memory::ordinary;
  return type == memory_type_host ? Memory::pinned : Memory::device;
}

bool is_captured(void* stream) {
  if (!driver() || driver()->is_capturing == nullptr) return false;
  int status = 0;
  const CuResult result = driver()->is_capturing(stream, &status);
  return result == capture_implicit || (result == cuda_success && status != 0);
}

void* current_context() {
  void* context = nullptr;
  if (driver()) driver()->get_context(&context);
  return context;
}

int device_of(void* context) {
  int device = 0;
  if (context == nullptr || !driver() || driver()->get_device == nullptr) return 0;
  const WithContext current(context);
  return driver()->get_device(&device) == cuda_success ? device : 0;
}

// cuCtxSetCurrent(NULL) would pop one, and leave current what is below it.
void WithContext::drop_all(std::vector<void*>* dropped) {
  void* context = nullptr;
  while (current_context() != nullptr && driver()->pop_context(&context) == cuda_success)
    if (dropped != nullptr) dropped->push_back(context);
}

WithContext::WithContext(void* context) {
  if (!driver()) return;
  drop_all(&before_);
  if (context != nullptr) driver()->push_context(context);
}

WithContext::~WithContext() {
  if (!driver()) return;
  drop_all(nullptr);
  for (auto it = before_.rbegin(); it != before_.rend(); ++it) driver()->push_context(*it);
}

}  // namespace epccl::nccl
