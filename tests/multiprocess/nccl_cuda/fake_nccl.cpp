#include "fake_nccl.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include "fake_cuda.hpp"

// The double of the driver may be either: this one, or the strict one of tests/doubles, which has streams.
extern "C" {
__attribute__((weak)) void* fake_cuda_allocate(size_t bytes, bool pinned);
__attribute__((weak)) void fake_cuda_free(void* memory);
__attribute__((weak)) int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes,
                                        cudaStream_t stream);
__attribute__((weak)) int cuStreamSynchronize(cudaStream_t stream);
}

struct ncclComm {
  int ranks, rank;
};

namespace {

std::mutex mutex;
std::string calls;
std::atomic<int> next_op{100};

template <typename T>
void print(std::ostream& out, const T& value) {
  if constexpr (std::is_pointer_v<T>)
    out << static_cast<const void*>(value);
  else if constexpr (std::is_enum_v<T>)
    out << static_cast<int>(value);
  else if constexpr (std::is_same_v<T, ncclUniqueId>)
    out << value.internal;
  else if constexpr (std::is_same_v<T, ncclTeam_t>)
    out << value.nRanks << '/' << value.rank << '/' << value.stride;
  else
    out << value;
}

struct Recorder {
  const char* name;
  template <typename... Arguments>
  bool operator()(const Arguments&... arguments) const {
    std::ostringstream line;
    line << name;
    ((line << ' ', print(line, arguments)), ...);
    const std::lock_guard lock(mutex);
    calls += line.str() + '\n';
    const char* failing = std::getenv("FAKE_NCCL_FAILS");
    return failing == nullptr || std::string_view(failing).substr(4) != name;
  }
};

// What a call does beyond being remembered.
namespace effect {

void MemAlloc(void** ptr, size_t size) {
  *ptr = fake_cuda_allocate(size, false);
}
void MemFree(void* ptr) {
  fake_cuda_free(ptr);
}
void GetVersion(int* version) {
  *version = 22809;
}
void GetUniqueId(ncclUniqueId* id) {
  std::strcpy(id->internal, "id-of-the-double");
}

void CommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId, int rank, ncclConfig_t*) {
  void* context = nullptr;
  cuCtxGetCurrent(&context);
  *comm = new ncclComm{nranks, rank};
  Recorder{"(made)"}(*comm, context);
}
void CommInitAll(ncclComm_t* comms, int ndev, const int*) {
  for (int rank = 0; rank < ndev; ++rank) comms[rank] = new ncclComm{ndev, rank};
}
void CommSplit(ncclComm_t comm, int color, int, ncclComm_t* out, ncclConfig_t*) {
  *out = color < 0 ? nullptr : new ncclComm{comm->ranks, comm->rank};
  Recorder{"(made)"}(*out);
}
void CommShrink(ncclComm_t comm, int*, int excluded, ncclComm_t* out, ncclConfig_t*, int) {
  *out = new ncclComm{comm->ranks - excluded, comm->rank};
  Recorder{"(made)"}(*out);
}
void CommDestroy(ncclComm_t comm) {
  delete comm;
}
void CommAbort(ncclComm_t comm) {
  delete comm;
}
void CommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
}
void CommCuDevice(ncclComm_t, int* device) {
  *device = 5;
}
void CommRegister(ncclComm_t, void* buff, size_t, void** handle) {
  *handle = buff;
}
void CommWindowRegister(ncclComm_t, void* buff, size_t, ncclWindow_t* window, int) {
  *window = static_cast<ncclWindow_t>(buff);
}
void RedOpCreatePreMulSum(ncclRedOp_t* op, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t) {
  *op = static_cast<ncclRedOp_t>(next_op++);
}
void GroupSimulateEnd(ncclSimInfo_t* info) {
  info->estimatedTime = 1e6F;
}

thread_local cudaStream_t used_in_group = nullptr;

// Where there are streams: that of one rank, of 4-byte elements.
void AllReduce(const void* from, void* to, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t,
               cudaStream_t stream) {
  used_in_group = stream;
  if (cuMemcpyAsync != nullptr)
    cuMemcpyAsync(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), 4 * count, stream);
}

// As the real one may when it connects.
void GroupEnd() {
  if (cuStreamSynchronize != nullptr && used_in_group != nullptr) cuStreamSynchronize(used_in_group);
  used_in_group = nullptr;
}

ncclTeam_t TeamLsa(ncclComm_t comm) {
  return {comm->ranks, comm->rank, 1};
}
const char* GetErrorString(ncclResult_t) {
  return "an error of the double";
}
const char* GetLastError(ncclComm_t) {
  return "the double's last error";
}

/// Everything else: nothing.
struct Nothing {
  template <typename... Arguments>
  void operator()(Arguments&&...) const {}
};
const Nothing CommInitRank, CommInitRankScalable, CommFinalize, CommRevoke, CommCount, CommUserRank,
    CommDeregister, CommWindowDeregister, RedOpDestroy, Reduce, Bcast, Broadcast, ReduceScatter, AllGather,
    AlltoAll, Gather, Scatter, Send, Recv, GroupStart, DevCommCreate, DevCommDestroy,
    LsaBarrierCreateRequirement, GinBarrierCreateRequirement, LLA2ACreateRequirement, ResetDebugInit,
    LLA2ACalcSlots, TeamWorld, TeamRail, TeamRankToWorld, TeamRankToLsa;

}  // namespace effect

template <typename Result, typename Effect>
Result perform(bool succeeds, Effect run) {
  if constexpr (std::is_same_v<Result, ncclResult_t>) {
    if (!succeeds) return ncclSystemError;
    run();
    return ncclSuccess;
  } else if constexpr (std::is_void_v<Result>) {
    run();
  } else if constexpr (std::is_void_v<decltype(run())>) {
    run();
    return Result{};
  } else {
    return run();
  }
}

}  // namespace

#define ROW(result, name, parameters, arguments)                                               \
  extern "C" __attribute__((visibility("default"))) result nccl##name parameters {             \
    return perform<result>(Recorder{#name} arguments, [&] { return effect::name arguments; }); \
  }
#include "nccl/entry_points.inc"
#undef ROW

extern "C" {
__attribute__((visibility("default"))) const char* fake_nccl_calls() {
  thread_local std::string copy;
  const std::lock_guard lock(mutex);
  copy = calls;
  return copy.c_str();
}
__attribute__((visibility("default"))) void fake_nccl_forget_calls() {
  const std::lock_guard lock(mutex);
  calls.clear();
}
}
