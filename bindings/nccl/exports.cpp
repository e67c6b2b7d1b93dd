// The symbols of libnccl.so.2: `pnccl*` strong, `nccl*` a weak alias of it, so that a profiler can put its own `nccl*` in front.
#include <exception>
#include <type_traits>

#include "entry_points.hpp"
#include "group.hpp"
#include "last_error.hpp"

namespace epccl::nccl {
namespace {

// Exceptions (out of memory, in practice) never cross the C boundary.
template <typename Body>
auto guarded(Body body) -> decltype(body()) {
  using Value = decltype(body());
  try {
    return body();
  } catch (const std::exception& failure) {
    // What asks for a text leaves that as it is.
    if constexpr (std::is_same_v<Value, const char*>) {
      return no_memory_for_text;
    } else {
      const ncclResult_t code = refuse_thrown(failure);
      if constexpr (std::is_same_v<Value, ncclResult_t>) return code;
      if constexpr (!std::is_void_v<Value>) return Value{};
    }
  }
}

Status newer(const char* name) {
  return error(Code::invalid_usage, "{} is newer than NCCL 2.28.9, whose interface this library has", name);
}

}  // namespace
}  // namespace epccl::nccl

#define EXPORTED extern "C" __attribute__((visibility("default")))

#define ROW(result, name, parameters, arguments)                                          \
  EXPORTED result pnccl##name parameters {                                                \
    return epccl::nccl::guarded([&]() -> result { return epccl::nccl::name arguments; }); \
  }                                                                                       \
  EXPORTED result nccl##name parameters __attribute__((weak, alias("pnccl" #name)));
#include "entry_points.inc"
#undef ROW

// A refusal looks at no argument: the caller's convention lets it have any.
#define REFUSED(name, refuse)                                                             \
  EXPORTED ncclResult_t pnccl##name() {                                                   \
    return epccl::nccl::guarded([] { return refuse(epccl::nccl::newer("nccl" #name)); }); \
  }                                                                                       \
  EXPORTED ncclResult_t nccl##name() __attribute__((weak, alias("pnccl" #name)));
#define NAME(name) REFUSED(name, epccl::nccl::refuse)
#define GROUP_NAME(name) REFUSED(name, epccl::nccl::refuse_call)
#include "newer_names.inc"
#undef NAME
#undef GROUP_NAME
#undef REFUSED

EXPORTED void pncclParamDumpAll() {}
EXPORTED void ncclParamDumpAll() __attribute__((weak, alias("pncclParamDumpAll")));

// In NCCL's symbol table, though in none of its headers.
EXPORTED void ncclResetDebugInitInternal() {
  pncclResetDebugInit();
}

// Tells this library from NVIDIA's: both are called libnccl.so.2.
EXPORTED const char* epccl_nccl_shim() {
  return EPCCL_VERSION_STRING;
}
