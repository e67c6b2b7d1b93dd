#include "device/cuda/driver.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "base/log.hpp"
#include "base/nvidia_driver.hpp"
#include "base/settings.hpp"

namespace epccl::device::cuda {
namespace {

constexpr const char* usual_name = "libcuda.so.1";

template <typename Function>
void find(void* library, Symbol<Function>& symbol) {
  symbol.function = reinterpret_cast<Function*>(dlsym(library, symbol.name));
}

Driver look_up(void* library, std::string& missing) {
  Driver found;
  const auto need = [&](auto& symbol) {
    find(library, symbol);
    if (!symbol) missing += missing.empty() ? symbol.name : std::string(", ") + symbol.name;
  };
#define EPCCL_CUDA_SYMBOL(member, symbol) need(found.member);
#define EPCCL_CUDA_OPTIONAL(member, symbol) find(library, found.member);
#include "device/cuda/driver_symbols.inc"
#undef EPCCL_CUDA_SYMBOL
  find(library, found.memcpy_batch);
  find(library, found.capture_info);
  find(library, found.elapsed_time);
  find(library, found.memcpy_batch_with_fail_index);
  return found;
}

std::string library_name() {
  std::string name = settings::get("EPCCL_CUDA_LIB");
  return name.empty() ? usual_name : name;
}

/// The functions; nothing is initialised.
Result<Driver> load() {
  const std::string name = library_name();
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: it has threads of its own
  if (library == nullptr) {
    const char* why = dlerror();
    return error(Code::device_error, "no CUDA driver: {}", why == nullptr ? name.c_str() : why);
  }
  std::string missing;
  Driver found = look_up(library, missing);
  if (!found.driver_version || found.driver_version(&found.version) != CUDA_SUCCESS) found.version = 0;
  if (!missing.empty())
    return error(Code::device_error, "the CUDA driver {} (CUDA {}) is too old, it lacks {}", name,
                 version_text(found.version), missing);
  log::info(log::init, -1,
            "CUDA driver {}: CUDA {}, {} copies of a list, {} memory shared by descriptor, {} signals", name,
            version_text(found.version), found.has_batch_copies() ? "has" : "lacks (one call a copy)",
            found.has_vmm() ? "has" : "lacks (CUDA IPC instead)",
            found.has_signals() ? "has" : "lacks (no queues)");
  return found;
}

const Result<Driver>& table() {
  static const Result<Driver> instance = load();
  return instance;
}

bool possible() {
  if (!settings::get("EPCCL_CUDA_LIB").empty()) return true;
  if (void* loaded = dlopen(usual_name, RTLD_NOW | RTLD_NOLOAD); loaded != nullptr) {
    dlclose(loaded);
    return true;
  }
  return nvidia_driver_is_there();
}

// A server of MPS, of which this process becomes a client.
bool mps_is_there() {
  return std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr || access("/tmp/nvidia-mps/control", F_OK) == 0;
}

// Streams share as many hardware queues as this says, 8 by default; what waits in one holds back all that is behind it, of
// whichever stream. Read by the driver when it is initialised, so it is too late where the program has done that. A server of MPS has
// a limit for all of its clients together, which a few that ask for many exhaust (CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED).
void ask_for_many_connections(const Driver& driver) {
  if (mps_is_there()) return;
  CUcontext context = nullptr;
  if (driver.context_current(&context) == CUDA_ERROR_NOT_INITIALIZED)
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

Result<const Driver*> initialise() {
  if (!table().ok()) return table().status();
  const Driver& found = *table();
  ask_for_many_connections(found);
  if (const CUresult result = found.init(0); result != CUDA_SUCCESS)
    return driver_error(found, found.init.name, result, -1);
  return &found;
}

}  // namespace

const Result<const Driver*>& driver() {
  static const Result<const Driver*> instance = initialise();
  return instance;
}

const Driver* possible_driver() {
  static const bool is_possible = possible();
  return is_possible && table().ok() ? &*table() : nullptr;
}

Status driver_error(const Driver& driver, const char* function, CUresult result, int ordinal) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.error_name) driver.error_name(result, &name);
  if (driver.error_string) driver.error_string(result, &text);
  const std::string where = ordinal < 0 ? "" : fmt::format(" on GPU {}", ordinal);
  return error(Code::device_error, "{}{}: {} ({}), {}", function, where,
               name == nullptr ? "an error unknown to the driver" : name, static_cast<int>(result),
               text == nullptr ? "no text" : text);
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace epccl::device::cuda
