#include "cuda_driver.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

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
  CuResult (*set_context)(void*) = nullptr;
  CuResult (*is_capturing)(void*, int*) = nullptr;
};

bool device_node_exists() {
  for (const char* node : {"/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu"})
    if (access(node, F_OK) == 0) return true;
  return false;
}

void* open_driver() {
  constexpr const char* name = "libcuda.so.1";
  if (void* loaded = dlopen(name, RTLD_NOW | RTLD_NOLOAD); loaded != nullptr) return loaded;
  return device_node_exists() ? dlopen(name, RTLD_NOW) : nullptr;
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
      !look_up(library, "cuCtxSetCurrent", driver.set_context))
    return std::nullopt;
  look_up(library, "cuStreamIsCapturing", driver.is_capturing);  // a driver without it captures nothing
  return driver;
}

const std::optional<Driver>& driver() {
  static const std::optional<Driver> instance = load();
  return instance;
}

}  // namespace

bool cuda_possible() {
  return driver().has_value();
}

bool cuda_wanted() {
  return driver().has_value() && settings::get("EPCCL_DEVICE") == "auto";
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
    void* const before = current_context();
    make_current(context);
    asked = driver()->pointer_attribute(&type, memory_type_attribute, address);
    make_current(before);
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

void make_current(void* context) {
  if (driver()) driver()->set_context(context);
}

}  // namespace epccl::nccl
