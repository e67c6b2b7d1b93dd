#include "real_library.hpp"

#include <dlfcn.h>

#include <atomic>
#include <vector>

#include "base/log.hpp"
#include "base/settings.hpp"
#include "real_library_path.hpp"

namespace epccl::nccl {
namespace {

std::atomic<const RealNccl*> opened{nullptr};

// Its own calls to nccl* must find itself, not this library, which may be preloaded. A sanitizer's runtime refuses that.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int open_flags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int open_flags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

template <typename Function>
void fill_in(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

Result<RealNccl> open_library(const std::string& path) {
  if (same_file(path, own_path()))
    return error(Code::invalid_usage, "{} is EPCCL's own library, not NVIDIA's", path);
  void* library = dlopen(path.c_str(), open_flags);
  if (library == nullptr) return error(Code::system_error, "{}", dlerror());
  // A copy of this library is another file. (It stays open: its threads, if any, run its code.)
  if (dlsym(library, "epccl_nccl_shim") != nullptr)
    return error(Code::invalid_usage, "{} is a copy of EPCCL's own library, not NVIDIA's", path);
  RealNccl real;
  real.path = path;
#define ROW(result, name, parameters, arguments) fill_in(library, "nccl" #name, real.name);
#include "entry_points.inc"
#undef ROW
  if (real.GetVersion == nullptr || real.GetVersion(&real.version) != ncclSuccess)
    return error(Code::system_error, "{} has no ncclGetVersion that works", path);
  return real;
}

Result<RealNccl> find_and_open() {
  const std::string chosen = settings::get("EPCCL_NCCL_LIB");
  const std::vector<std::string> paths =
      chosen.empty() ? candidates_for_real_nccl() : std::vector<std::string>{chosen};
  std::string failures;
  for (const std::string& path : paths) {
    Result<RealNccl> real = open_library(path);
    if (real.ok()) return real;
    failures += (failures.empty() ? "" : "; ") + real.status().message();
  }
  if (!chosen.empty()) return error(Code::system_error, "EPCCL_NCCL_LIB: {}", failures);
  if (paths.empty())
    return error(Code::system_error,
                 "no libnccl.so.2 but EPCCL's own was found: set EPCCL_NCCL_LIB to NVIDIA's");
  return error(Code::system_error, "{}", failures);
}

Result<RealNccl> open_and_tell() {
  Result<RealNccl> real = find_and_open();
  if (real.ok())
    log::info(log::init, -1, "the real NCCL: {}, version {}", real->path, real->version);
  else
    log::warn(log::init, -1, "the real NCCL cannot be opened: {}", real.status().message());
  return real;
}

}  // namespace

const Result<RealNccl>& real_nccl() {
  static const Result<RealNccl> library = open_and_tell();
  if (library.ok()) opened.store(&library.value(), std::memory_order_release);
  return library;
}

Status check_has(const RealNccl& real, bool there, std::string_view name) {
  if (there) return {};
  return error(Code::invalid_usage, "{}: the real NCCL ({}, version {}) does not have it", name, real.path,
               real.version);
}

const RealNccl* opened_real_nccl() {
  return opened.load(std::memory_order_acquire);
}

}  // namespace epccl::nccl
