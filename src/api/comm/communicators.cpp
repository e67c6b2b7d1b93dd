// Unique ids, communicators and error queries.
#include <cmath>
#include <cstring>

#include "api/groups/concurrently.hpp"
#include "api/groups/group.hpp"
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"
#include "base/log.hpp"
#include "base/threads_own.hpp"
#include "runtime/bootstrap/unique_id.hpp"

struct epcclRemains {
  epccl::api::HandlePtr handle;
};

namespace epccl::api {
namespace {

/// Of epcclGetLastError(comm), until the thread's next.
struct BackgroundText {
  std::string value;
};

static_assert(sizeof(epcclUniqueId) == sizeof(runtime::UniqueId));

Status get_unique_id(epcclUniqueId* out) {
  if (out == nullptr) return {Code::invalid_argument, "uniqueId is NULL"};
  EPCCL_ASSIGN(const runtime::UniqueId id, runtime::create_unique_id());
  std::memcpy(out->internal, id.bytes.data(), id.bytes.size());
  return {};
}

// The code is NCCL's for a communicator that is brought to an end once more.
Result<CommPtr> find_going_communicator(epcclComm_t comm) {
  EPCCL_ASSIGN(CommPtr communicator, find_communicator(comm));
  if (communicator->finalized() || communicator->revoked())
    return error(Code::invalid_argument, "rank {}: the communicator has been {}", communicator->rank(),
                 communicator->finalized() ? "finalized" : "revoked");
  return communicator;
}

Status finalize(epcclComm_t comm) {
  EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
  EPCCL_ASSIGN(const CommPtr communicator, find_going_communicator(comm));
  if (const size_t calls = calls_in_group(handle); calls > 0)
    return error(Code::invalid_usage,
                 "the communicator has {} calls in this thread's open group: end the group first", calls);
  Job job;
  job.blocking = handle->blocking();
  job.begin = [handle] {
    if (!handle->blocking()) handle->begin_background();
  };
  job.run = [handle, communicator = communicator]() mutable {
    Status status = communicator->finalize();
    communicator.reset();  // before it is known that this is over: who destroys it then shall be the last
    if (!handle->blocking()) handle->end_background(status);
    return status;
  };
  job.cancel = [] {};
  job.handle = handle;
  return submit(std::move(job));
}

Status revoke(epcclComm_t comm, int flags) {
  EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
  EPCCL_ASSIGN(const CommPtr communicator, find_going_communicator(comm));
  if (flags != EPCCL_REVOKE_DEFAULT)
    return error(Code::invalid_argument, "revokeFlags {} is not EPCCL_REVOKE_DEFAULT", flags);
  if (in_group()) return {Code::invalid_usage, "epcclCommRevoke cannot be part of a group"};
  // What is being made of it was begun when it was whole.
  handle->interrupt();
  if (handle->blocking()) {
    communicator->revoke();
    return {};
  }
  handle->begin_background();
  run_in_background([handle, communicator = communicator]() mutable {
    communicator->revoke();
    communicator.reset();  // as above
    handle->end_background({});
  });
  return {Code::in_progress, ""};
}

Status destroy(epcclComm_t comm) {
  EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
  if (handle->async_error().code() == Code::in_progress) {
    // The communicator says why not; one that is only being revoked does not, and can go.
    EPCCL_TRY(handle->communicator().status());
  }
  if (const size_t calls = calls_in_group(handle); calls > 0)
    return error(Code::invalid_usage,
                 "the communicator has {} calls in this thread's open group: end the group first", calls);
  EPCCL_TRY(remove_handle(comm, End::destroyed).status());
  // Failures were reported where they happened; what is left to say here is that the handle is gone. Work that ended in the
  // background a moment ago may still have the handle, so the communicator is taken out, and an EP group keeps it for as long
  // as it lives: the other ranks are told here, and the process may end when this returns.
  if (const CommPtr communicator = handle->take()) (void)communicator->finalize();
  keep_idle_threads(count_handles());
  return {};
}

/// What is left of it: its memory, which goes with the last that has it.
Result<HandlePtr> abort(epcclComm_t comm) {
  EPCCL_ASSIGN(HandlePtr handle, find_handle(comm));
  drop_from_group(handle);
  EPCCL_TRY(remove_handle(comm, End::aborted).status());
  handle->abort();
  keep_idle_threads(count_handles());
  return handle;
}

Status abort_beside(epcclComm_t comm, epcclRemains_t* remains) {
  if (remains == nullptr) return {Code::invalid_argument, "remains is NULL"};
  *remains = nullptr;
  EPCCL_ASSIGN(HandlePtr handle, abort(comm));
  *remains = new epcclRemains{std::move(handle)};  // NOLINT: it is the caller's
  return {};
}

template <typename T, typename Get>
Status query(epcclComm_t comm, const char* what, T* out, Get get) {
  EPCCL_ASSIGN(const CommPtr communicator, find_communicator(comm));
  if (out == nullptr) return error(Code::invalid_argument, "{} is NULL", what);
  *out = get(*communicator);
  return {};
}

Status get_lost_ranks(epcclComm_t comm, int* ranks, int capacity, int* count) {
  EPCCL_ASSIGN(const CommPtr communicator, find_communicator(comm));
  if (count == nullptr) return {Code::invalid_argument, "count is NULL"};
  *count = 0;
  if (capacity < 0) return error(Code::invalid_argument, "capacity {} is negative", capacity);
  if (ranks == nullptr && capacity > 0)
    return error(Code::invalid_argument, "ranks is NULL, with room for {}", capacity);
  for (const int rank : communicator->lost_ranks()) {
    if (*count < capacity) ranks[*count] = rank;
    ++*count;
  }
  return {};
}

const char* find_last_error(epcclComm_t comm) {
  if (*last_error() != 0 || comm == nullptr) return last_error();
  const auto handle = find_handle(comm);
  if (!handle.ok()) return last_error();
  std::string& background = threads_own<BackgroundText>().value;
  const Status failure = handle.value()->failure();
  if (!failure.ok() && failure.message().empty()) return no_memory_for_text;
  background = failure.message();
  return background.c_str();
}

Reason find_last_reason(epcclComm_t comm) {
  if (*last_error() != 0 || comm == nullptr) return last_reason();
  const auto handle = find_handle(comm);
  return handle.ok() ? handle.value()->failure().reason() : last_reason();
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;
using epccl::Status;

epcclResult_t epcclGetVersion(int* version) {
  return guarded([&]() -> Status {
    if (version == nullptr) return {epccl::Code::invalid_argument, "version is NULL"};
    *version = EPCCL_VERSION_CODE;
    return {};
  });
}

epcclResult_t epcclResetDebugInit() {
  return guarded([]() -> Status {
    epccl::log::read_again();
    return {};
  });
}

const char* epcclGetErrorString(epcclResult_t result) {
  switch (result) {
    case epcclSuccess:
      return "no error";
    case epcclUnhandledDeviceError:
      return "unhandled device error";
    case epcclSystemError:
      return "a system call or the network failed on this rank";
    case epcclInternalError:
      return "internal error: a defect of the library";
    case epcclInvalidArgument:
      return "invalid argument";
    case epcclInvalidUsage:
      return "invalid usage";
    case epcclRemoteError:
      return "another rank failed, died or stayed silent";
    case epcclInProgress:
      return "in progress";
    default:
      return "unknown result code";
  }
}

const char* epcclGetLastError(epcclComm_t comm) {
  return guarded_or(no_memory_for_text, [&] { return find_last_error(comm); });
}

epcclReason_t epcclGetLastErrorReason(epcclComm_t comm) {
  return static_cast<epcclReason_t>(guarded_or(epccl::Reason::none, [&] { return find_last_reason(comm); }));
}

epcclResult_t epcclGetUniqueId(epcclUniqueId* uniqueId) {
  return guarded([&] { return get_unique_id(uniqueId); });
}

epcclResult_t epcclCommFinalize(epcclComm_t comm) {
  return guarded([&] { return refuse(finalize(comm)); });
}

epcclResult_t epcclCommRevoke(epcclComm_t comm, int revokeFlags) {
  return guarded([&] { return revoke(comm, revokeFlags); });
}

epcclResult_t epcclCommDestroy(epcclComm_t comm) {
  return guarded([&] { return destroy(comm); });
}

epcclResult_t epcclCommAbort(epcclComm_t comm) {
  return guarded([&] { return abort(comm).status(); });
}

epcclResult_t epcclCommAbortBeside(epcclComm_t comm, epcclRemains_t* remains) {
  return guarded([&] { return abort_beside(comm, remains); });
}

epcclResult_t epcclRemainsFree(epcclRemains_t remains) {
  return guarded([&]() -> Status {
    delete remains;  // NOLINT: of epcclCommAbortBeside()
    return {};
  });
}

epcclResult_t epcclCommGetAsyncError(epcclComm_t comm, epcclResult_t* asyncError) {
  return guarded([&]() -> Status {
    EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
    if (asyncError == nullptr) return {epccl::Code::invalid_argument, "asyncError is NULL"};
    // Who is told of a failure asks for its text next.
    *asyncError = finish(handle->async_error());
    return {};
  });
}

epcclResult_t epcclCommQuery(epcclComm_t comm) {
  epcclResult_t result = epcclSuccess;
  const epcclResult_t checked = guarded([&]() -> Status {
    EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
    const CommPtr communicator = handle->made();
    const bool is_quiet = communicator == nullptr || communicator->is_quiet();
    if (!is_quiet || handle->async_error().code() == epccl::Code::in_progress) result = epcclInProgress;
    return {};
  });
  return checked == epcclSuccess ? result : checked;
}

epcclResult_t epcclCommSetTimeout(epcclComm_t comm, double seconds) {
  return guarded([&]() -> Status {
    EPCCL_ASSIGN(const CommPtr communicator, find_usable_communicator(comm));
    if (std::isnan(seconds)) return {epccl::Code::invalid_argument, "seconds is not a number"};
    communicator->set_timeout(seconds);
    return {};
  });
}

epcclResult_t epcclCommGetLostRanks(epcclComm_t comm, int* ranks, int capacity, int* count) {
  return guarded([&] { return get_lost_ranks(comm, ranks, capacity, count); });
}

epcclResult_t epcclCommCount(epcclComm_t comm, int* count) {
  return guarded([&] {
    return query(comm, "count", count, [](const auto& communicator) { return communicator.ranks(); });
  });
}

epcclResult_t epcclCommUserRank(epcclComm_t comm, int* rank) {
  return guarded([&] {
    return query(comm, "rank", rank, [](const auto& communicator) { return communicator.rank(); });
  });
}

epcclResult_t epcclCommDevice(epcclComm_t comm, int* device) {
  return guarded([&]() -> Status {
    EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
    EPCCL_TRY(handle->communicator().status());
    if (device == nullptr) return {epccl::Code::invalid_argument, "device is NULL"};
    *device = handle->device();
    return {};
  });
}
