#include "real_library.hpp"

#include <dlfcn.h>

#include <atomic>
#include <vector>

#include "base/log.hpp"
#include "base/never_destroyed.hpp"
#include "base/settings.hpp"
#include "own_symbols.hpp"
#include "real_library_path.hpp"

namespace epccl::nccl {
namespace {

std::atomic<const RealNccl*> opened{nullptr};

// Its own calls to nccl* must find itself, not this library, which may be preloaded. RTLD_DEEPBIND does that, but it would find the C
// library's malloc, too, where the process has another one. And a library that the process has loaded already, as PyTorch does by a path of its
// own, keeps what it was bound to then.
Result<void*> open_bound_to_itself(const std::string& path) {
  const bool bind_first = malloc_is_libc_s();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | (bind_first ? RTLD_DEEPBIND : 0));
  if (library == nullptr) return error(Code::system_error, "{}", dlerror());
  if (!bind_first)
    log::info(log::init, -1, "{} is opened without RTLD_DEEPBIND: malloc is not the C library's", path);
  if (const Status bound = bind_to_itself(library); !bound.ok())
    return error(Code::system_error, "{}: {}", path, bound.message());
  return library;
}

template <typename Function>
void fill_in(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

Result<RealNccl> open_library(const std::string& path) {
  if (same_file(path, own_path()))
    return error(Code::invalid_usage, "{} is EPCCL's own library, not NVIDIA's", path);
  EPCCL_ASSIGN(void* const library, open_bound_to_itself(path));
  // A copy of this library is another file, and a name without a folder is this library, which is loaded under it. (It stays open: its
  // threads, if any, run its code.)
  if (dlsym(library, "epccl_nccl_shim") != nullptr)
    return error(Code::invalid_usage, "{} is EPCCL's own library (by its name, or a copy), not NVIDIA's",
                 path);
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
      chosen.empty() ? candidates_for_real_nccl() : std::vector<std::string>{library_of_setting(chosen)};
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
  // Threads may make communicators with it until the process has ended.
  static NeverDestroyed<Result<RealNccl>> library(open_and_tell());
  if (library->ok()) opened.store(&library->value(), std::memory_order_release);
  return *library;
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
