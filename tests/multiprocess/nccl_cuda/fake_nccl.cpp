#include "fake_nccl.hpp"

#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fake_cuda.hpp"

// The double of the driver may be either: this one, or the strict one of tests/doubles, which has streams.
extern "C" {
__attribute__((weak)) void* fake_cuda_allocate(size_t bytes, bool pinned);
__attribute__((weak)) void fake_cuda_free(void* memory);
__attribute__((weak)) int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes,
                                        cudaStream_t stream);
__attribute__((weak)) int cuStreamSynchronize(cudaStream_t stream);
__attribute__((weak)) int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags);
__attribute__((weak)) int cuStreamWaitValue64_v2(cudaStream_t stream, unsigned long long address,
                                                 unsigned long long value, unsigned flags);
}

struct ncclComm {
  int ranks, rank;
  bool blocking = true;
  int in_progress = 0;                        // how often it still says so
  std::vector<std::function<void()>> at_end;  // of that
  std::atomic<uint64_t>* ended = nullptr;     // pinned: what is stuck waits for it
};

namespace {

std::mutex mutex;  // of all that follows
std::string calls;
std::set<const void*> live;  // communicators
std::atomic<int> next_op{100};
std::atomic<const char*> last_error{"the double's last error"};

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

// What the real one would do with a communicator that is gone nobody knows; here the rank ends.
template <typename T>
void check_live(const char* name, const T& value) {
  if constexpr (std::is_same_v<T, ncclComm_t>) {
    if (value == nullptr || live.contains(value)) return;
    std::fprintf(stderr, "nccl%s: %p is not a communicator\n", name, static_cast<void*>(value));
    std::abort();
  }
}

struct Recorder {
  const char* name;
  template <typename... Arguments>
  bool operator()(const Arguments&... arguments) const {
    std::ostringstream line;
    line << name;
    ((line << ' ', print(line, arguments)), ...);
    const std::lock_guard lock(mutex);
    if (*name != '(') (check_live(name, arguments), ...);
    calls += line.str() + '\n';
    const char* failing = std::getenv("FAKE_NCCL_FAILS");
    return failing == nullptr || std::string_view(failing).substr(4) != name;
  }
};

// FAKE_NCCL_POLLS: how often a nonblocking communicator says that it is in progress; "never" ends by itself what it is at.
int polls() {
  const char* value = std::getenv("FAKE_NCCL_POLLS");
  if (value == nullptr) return 3;
  return std::string_view(value) == "never" ? INT_MAX : std::atoi(value);
}

/// What waits for the end of the calling thread's group: who says how far it is, and what is done.
struct Pending {
  ncclComm_t comm;
  std::function<void()> work;
};
thread_local struct {
  int depth = 0;
  ncclResult_t failed = ncclSuccess;
  std::vector<Pending> pending;
} open_group;

ncclComm_t make(int ranks, int rank, bool blocking) {
  auto* const made = new ncclComm{ranks, rank, blocking, 0, {}, nullptr};
  const std::lock_guard lock(mutex);
  live.insert(made);
  return made;
}

void end_progress(ncclComm_t comm) {
  std::unique_lock lock(mutex);
  comm->in_progress = 0;
  const auto at_end = std::exchange(comm->at_end, {});
  lock.unlock();
  for (const auto& work : at_end) work();
}

void remove(ncclComm_t comm) {
  end_progress(comm);
  const std::lock_guard lock(mutex);
  live.erase(comm);
  delete comm;
}

// A nonblocking communicator's goes on in the background: here it is done when one has asked often enough.
ncclResult_t begin(Pending job) {
  if (job.comm->blocking) {
    job.work();
    return ncclSuccess;
  }
  const std::lock_guard lock(mutex);
  job.comm->in_progress = polls();
  job.comm->at_end.push_back(std::move(job.work));
  return ncclInProgress;
}

ncclResult_t begin_or_keep(Pending job) {
  if (open_group.depth == 0) return begin(std::move(job));
  open_group.pending.push_back(std::move(job));
  return ncclSuccess;
}

ncclResult_t fail(ncclResult_t result, const char* text) {
  last_error = text;
  if (open_group.depth > 0) open_group.failed = result;
  return result;
}

bool is_ready(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  return comm->in_progress == 0;
}

// FAKE_NCCL_STUCK: what is queued waits as for a rank that is dead, until the communicator's work is ended.
void stick(ncclComm_t comm, cudaStream_t stream) {
  if (std::getenv("FAKE_NCCL_STUCK") == nullptr || cuStreamWaitValue64_v2 == nullptr) return;
  void* memory = comm->ended;
  if (memory == nullptr) cuMemHostAlloc(&memory, sizeof *comm->ended, 0);
  comm->ended = new (memory) std::atomic<uint64_t>(0);
  cuStreamWaitValue64_v2(stream, reinterpret_cast<uintptr_t>(memory), 1, 0);
}

// At the call, also in a group. The pinned memory stays, since to free it waits for all streams.
void end_what_is_stuck(ncclComm_t comm) {
  if (comm->ended != nullptr) *comm->ended = 1;
}

// What a call does beyond being remembered.
namespace effect {

void MemAlloc(void** ptr, size_t size) {
  *ptr = fake_cuda_allocate(size, false);
}
void MemFree(void* ptr) {
  if (fake_cuda_free != nullptr) fake_cuda_free(ptr);
}
// As the real one, it frees what the C library has got from malloc.
void GetVersion(int* version) {
  std::free(strdup("22809"));  // NOLINT(cppcoreguidelines-no-malloc)
  *version = 22809;
}
void GetUniqueId(ncclUniqueId* id) {
  std::strcpy(id->internal, "id-of-the-double");
}

ncclResult_t CommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId, int rank, ncclConfig_t* config) {
  void* context = nullptr;
  cuCtxGetCurrent(&context);
  *comm = make(nranks, rank, config == nullptr || config->blocking != 0);
  Recorder{"(made)"}(*comm, context);
  return begin_or_keep({*comm, [] {}});
}
void CommInitAll(ncclComm_t* comms, int ndev, const int*) {
  for (int rank = 0; rank < ndev; ++rank) comms[rank] = make(ndev, rank, true);
}

// The parent tells how far it is; the handle is there at the end.
ncclResult_t make_child(ncclComm_t parent, ncclComm_t* out, int ranks, const ncclConfig_t* config) {
  if (!is_ready(parent)) return fail(ncclInvalidArgument, "the parent is in progress");
  *out = nullptr;
  const bool blocking = config == nullptr ? parent->blocking : config->blocking != 0;
  begin_or_keep({parent, [out, ranks, rank = parent->rank, blocking] {
                   *out = ranks == 0 ? nullptr : make(ranks, rank, blocking);
                   Recorder{"(made)"}(*out);
                 }});
  return ncclSuccess;
}
// FAKE_NCCL_SPLITS_MEET: as the real one a split waits for all ranks of the parent, which are this process's here. A group's does so at
// its end.
bool splits_meet(int ranks) {
  static std::condition_variable came;
  static int splits = 0;
  if (std::getenv("FAKE_NCCL_SPLITS_MEET") == nullptr) return true;
  std::unique_lock lock(mutex);
  const int all = (splits++ / ranks + 1) * ranks;
  came.notify_all();
  return open_group.depth > 0 || came.wait_for(lock, std::chrono::seconds(20), [&] { return splits >= all; });
}
ncclResult_t CommSplit(ncclComm_t comm, int color, int, ncclComm_t* out, ncclConfig_t* config) {
  if (!splits_meet(comm->ranks)) return fail(ncclSystemError, "the other ranks of a split have not come");
  return make_child(comm, out, color < 0 ? 0 : comm->ranks, config);
}
ncclResult_t CommShrink(ncclComm_t comm, int*, int excluded, ncclComm_t* out, ncclConfig_t* config,
                        int flags) {
  if (flags != 0) end_what_is_stuck(comm);
  return make_child(comm, out, comm->ranks - excluded, config);
}
ncclResult_t CommDestroy(ncclComm_t comm) {
  if (!is_ready(comm)) return fail(ncclInvalidArgument, "the communicator is in progress");
  comm->blocking = true;
  return begin_or_keep({comm, [comm] { remove(comm); }});
}
// It waits for what is in progress, which ends at once. What a group ends is gone with that.
void CommAbort(ncclComm_t comm) {
  end_what_is_stuck(comm);
  end_progress(comm);
  comm->blocking = true;
  begin_or_keep({comm, [comm] { remove(comm); }});
}
ncclResult_t CommRevoke(ncclComm_t comm, int) {
  end_what_is_stuck(comm);
  return begin_or_keep({comm, [] {}});
}
void CommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  std::unique_lock lock(mutex);
  *state = comm->in_progress > 0 ? ncclInProgress : ncclSuccess;
  if (comm->in_progress == 0 || comm->in_progress == INT_MAX || --comm->in_progress > 0) return;
  lock.unlock();
  end_progress(comm);
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

ncclResult_t Send(const void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t) {
  return comm != nullptr ? ncclSuccess : fail(ncclInvalidArgument, "Send: comm argument is NULL");
}

void GroupStart() {
  ++open_group.depth;
}

// A group of which a call failed does nothing.
ncclResult_t close_group() {
  if (--open_group.depth > 0) return ncclSuccess;
  auto group = std::exchange(open_group, {});
  if (group.failed != ncclSuccess) return group.failed;
  ncclResult_t result = ncclSuccess;
  for (Pending& job : group.pending)
    if (begin(std::move(job)) == ncclInProgress) result = ncclInProgress;
  return result;
}

ncclResult_t GroupSimulateEnd(ncclSimInfo_t* info) {
  info->estimatedTime = 1e6F;
  return close_group();
}

thread_local cudaStream_t used_in_group = nullptr;

// Where there are streams: that of one rank, of 4-byte elements. A group of a nonblocking communicator's calls goes on in the
// background.
void AllReduce(const void* from, void* to, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
               cudaStream_t stream) {
  stick(comm, stream);
  used_in_group = stream;
  if (open_group.depth > 0 && !comm->blocking) open_group.pending.push_back({comm, [] {}});
  if (cuMemcpyAsync != nullptr)
    cuMemcpyAsync(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), 4 * count, stream);
}

// As the real one may when it connects.
ncclResult_t GroupEnd() {
  const bool connects = std::getenv("FAKE_NCCL_STUCK") == nullptr;
  if (connects && cuStreamSynchronize != nullptr && used_in_group != nullptr)
    cuStreamSynchronize(used_in_group);
  used_in_group = nullptr;
  return close_group();
}

ncclTeam_t TeamLsa(ncclComm_t comm) {
  return {comm->ranks, comm->rank, 1};
}
const char* GetErrorString(ncclResult_t) {
  return "an error of the double";
}
const char* GetLastError(ncclComm_t) {
  return last_error;
}

/// Everything else: nothing.
struct Nothing {
  template <typename... Arguments>
  void operator()(Arguments&&...) const {}
};

// The real one calls a function that it exports, too.
ncclResult_t Bcast(void* buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                   cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, type, root, comm, stream);
}
const Nothing CommInitRank, CommInitRankScalable, CommFinalize, CommCount, CommUserRank, CommDeregister,
    CommWindowDeregister, RedOpDestroy, Reduce, Broadcast, ReduceScatter, AllGather, AlltoAll, Gather,
    Scatter, Recv, DevCommCreate, DevCommDestroy, LsaBarrierCreateRequirement, GinBarrierCreateRequirement,
    LLA2ACreateRequirement, ResetDebugInit, LLA2ACalcSlots, TeamWorld, TeamRail, TeamRankToWorld,
    TeamRankToLsa;

}  // namespace effect

template <typename Result, typename Effect>
Result perform(bool succeeds, Effect run) {
  if constexpr (std::is_same_v<Result, ncclResult_t>) {
    if (!succeeds) return fail(ncclSystemError, "the double's last error");
    if constexpr (std::is_same_v<decltype(run()), ncclResult_t>) {
      return run();
    } else {
      run();
      return ncclSuccess;
    }
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

extern "C" __attribute__((visibility("default"))) const char* fake_nccl_calls() {
  thread_local std::string taken;
  const std::lock_guard lock(mutex);
  taken = std::exchange(calls, {});
  return taken.c_str();
}
