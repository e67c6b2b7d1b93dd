// Memory, registrations and windows.
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/per_process.hpp"
#include "base/settings.hpp"
#include "entry_points.hpp"
#include "native_choice.hpp"
#include "route.hpp"

namespace epccl::nccl {
namespace {

template <typename Function, typename Invoke>
ncclResult_t call_real_library(const char* name, Function RealNccl::*entry, Invoke invoke) {
  const Result<RealNccl>& real = real_nccl();
  if (!real.ok())
    return refuse(error(Code::system_error, "{} of CUDA memory needs the real NCCL: {}", name,
                        real.status().message()));
  const Function function = real.value().*entry;
  if (Status has = check_has(real.value(), function != nullptr, name); !has.ok()) return refuse(has);
  return from_real(invoke(function));
}

// Null: host memory.
Result<CudaSidePtr> side_of_buffer(const char* name, ncclComm_t comm, const void* buffer, size_t size) {
  if (!cuda_possible()) return CudaSidePtr{};
  EPCCL_ASSIGN(Route found, route({name, comm, nullptr, size, {{"buff", buffer}}, What::registration}));
  return std::move(found.side);
}

/// What ncclMemAlloc has given of EPCCL's own GPU memory.
struct NativeAllocations {
  std::mutex mutex;
  std::set<const void*> all;
};

NativeAllocations& native_allocations() {
  static PerProcess<NativeAllocations> instance;
  return *instance;
}

ncclResult_t allocate_natively(void** ptr, size_t size) {
  const epcclResult_t made = epcclMemAllocOn(ptr, size, EPCCL_CURRENT_GPU);
  if (made == epcclSuccess) {
    const std::lock_guard lock(native_allocations().mutex);
    native_allocations().all.insert(*ptr);
  }
  if (made == epcclSuccess || wants_everything_native() || ptr == nullptr) return from_native(made);
  const std::string why = epcclGetLastError(nullptr);
  return refuse(error(Code::system_error,
                      "ncclMemAlloc of CUDA memory needs the real NCCL: {} (EPCCL's own memory: {})",
                      real_nccl().status().message(), why));
}

bool was_allocated_natively(const void* ptr) {
  const std::lock_guard lock(native_allocations().mutex);
  return native_allocations().all.erase(ptr) > 0;
}

}  // namespace

// Where there is a GPU a program means its memory. With EPCCL_DEVICE=cuda no call here would take it.
ncclResult_t MemAlloc(void** ptr, size_t size) {
  if (settings::get("EPCCL_DEVICE") == "cuda")
    return refuse({Code::invalid_usage,
                   "ncclMemAlloc with EPCCL_DEVICE=cuda: calls take host memory only (auto: both; host: this "
                   "gives host memory)"});
  if (!gpu_present()) return from_native(epcclMemAlloc(ptr, size));
  if (wants_everything_native() || !real_nccl().ok()) return allocate_natively(ptr, size);
  return call_real_library("ncclMemAlloc", &RealNccl::MemAlloc,
                           [&](auto function) { return function(ptr, size); });
}

ncclResult_t MemFree(void* ptr) {
  const bool is_cuda = cuda_possible() && memory_of(ptr, context_of_any_side()) == Memory::device;
  if (!is_cuda || was_allocated_natively(ptr)) return from_native(epcclMemFree(ptr));
  return call_real_library("ncclMemFree", &RealNccl::MemFree, [&](auto function) { return function(ptr); });
}

ncclResult_t CommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  const Result<CudaSidePtr> side = side_of_buffer("ncclCommRegister", comm, buff, size);
  if (!side.ok()) return refuse(side.status());
  if (side.value() == nullptr) return from_native(epcclCommRegister(native(comm), buff, size, handle));
  return call_real(*side.value(), "ncclCommRegister", side.value()->library->CommRegister,
                   [&](auto function, ncclComm_t real) { return function(real, buff, size, handle); });
}

// A handle says nothing of who made it, but EPCCL knows its own.
ncclResult_t CommDeregister(const ncclComm_t comm, void* handle) {
  if (handle == nullptr) return check_comm(comm);
  const CudaSidePtr side = find_real_side(comm);
  if (side == nullptr || epcclIsRegistration(native(comm), handle) == 1)
    return from_native(epcclCommDeregister(native(comm), handle));
  return call_real(*side, "ncclCommDeregister", side->library->CommDeregister,
                   [&](auto function, ncclComm_t real) { return function(real, handle); });
}

ncclResult_t CommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags) {
  const Result<CudaSidePtr> side = side_of_buffer("ncclCommWindowRegister", comm, buff, size);
  if (!side.ok()) return refuse_call(side.status());
  if (side.value() == nullptr)
    return note_call(from_native(
        epcclCommWindowRegister(native(comm), buff, size, reinterpret_cast<epcclWindow_t*>(win), winFlags)));
  return call_real(*side.value(), "ncclCommWindowRegister", side.value()->library->CommWindowRegister,
                   [&](auto function, ncclComm_t real) { return function(real, buff, size, win, winFlags); });
}

ncclResult_t CommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  if (win == nullptr) return ncclSuccess;
  const CudaSidePtr side = find_real_side(comm);
  if (side == nullptr || epcclIsRegistration(native(comm), win) == 1)
    return note_call(
        from_native(epcclCommWindowDeregister(native(comm), reinterpret_cast<epcclWindow_t>(win))));
  return call_real(*side, "ncclCommWindowDeregister", side->library->CommWindowDeregister,
                   [&](auto function, ncclComm_t real) { return function(real, win); });
}

}  // namespace epccl::nccl
