// Unique ids, communicators and error queries.
#include <cstring>

#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/last_error.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::api {
namespace {

static_assert(sizeof(epcclUniqueId) == sizeof(runtime::UniqueId));

Status get_unique_id(epcclUniqueId* out) {
  if (out == nullptr) return {Code::invalid_argument, "uniqueId is NULL"};
  EPCCL_ASSIGN(const runtime::UniqueId id, runtime::create_unique_id());
  std::memcpy(out->internal, id.bytes.data(), id.bytes.size());
  return {};
}

// A config of an older or newer library is read as far as both know it.
Result<runtime::CommOptions> read_config(const epcclConfig_t* given) {
  runtime::CommOptions options;
  if (given == nullptr) return options;
  epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < offsetof(epcclConfig_t, algorithm) || size > 64 * sizeof(epcclConfig_t))
    return error(Code::invalid_argument, "config.size is {}: use EPCCL_CONFIG_INITIALIZER", size);
  std::memcpy(&config, given, std::min(size, sizeof config));
  if (config.magic != EPCCL_CONFIG_MAGIC)
    return error(Code::invalid_argument, "config.magic is {:#x}: use EPCCL_CONFIG_INITIALIZER", config.magic);
  if (config.algorithm != nullptr) options.algorithm = config.algorithm;
  if (config.commName != nullptr) options.name = config.commName;
  options.timeout_seconds = config.timeout;
  return options;
}

Status init(epcclComm_t* comm, int nranks, const epcclUniqueId& id, int rank, const epcclConfig_t* config) {
  if (comm == nullptr) return {Code::invalid_argument, "comm is NULL"};
  *comm = nullptr;
  if (nranks < 1) return error(Code::invalid_argument, "nranks {} is not positive", nranks);
  EPCCL_TRY(check_rank("rank", rank, nranks));
  EPCCL_ASSIGN(const runtime::CommOptions options, read_config(config));
  runtime::UniqueId unique_id;
  std::memcpy(unique_id.bytes.data(), id.internal, unique_id.bytes.size());
  EPCCL_ASSIGN(runtime::CommParts parts, runtime::set_up(unique_id, rank, nranks, options));
  *comm = add_communicator(std::make_shared<runtime::Communicator>(std::move(parts)));
  return {};
}

Status destroy(epcclComm_t handle) {
  EPCCL_ASSIGN(const CommPtr communicator, remove_communicator(handle));
  // Failures were reported where they happened; what is left to say here is that the handle is gone.
  (void)communicator->finalize();
  return {};
}

Status abort(epcclComm_t handle) {
  EPCCL_ASSIGN(const CommPtr communicator, remove_communicator(handle));
  communicator->abort();
  return {};
}

template <typename T, typename Get>
Status query(epcclComm_t comm, const char* what, T* out, Get get) {
  EPCCL_ASSIGN(const CommPtr communicator, find_communicator(comm));
  if (out == nullptr) return error(Code::invalid_argument, "{} is NULL", what);
  *out = get(*communicator);
  return {};
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclGetVersion(int* version) {
  return guarded([&]() -> epccl::Status {
    if (version == nullptr) return {epccl::Code::invalid_argument, "version is NULL"};
    *version = EPCCL_VERSION_CODE;
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
  thread_local std::string background;
  if (*last_error() != 0 || comm == nullptr) return last_error();
  const auto communicator = find_communicator(comm);
  if (!communicator.ok()) return last_error();
  background = communicator.value()->failure().message();
  return background.c_str();
}

epcclResult_t epcclGetUniqueId(epcclUniqueId* uniqueId) {
  return guarded([&] { return get_unique_id(uniqueId); });
}

epcclResult_t epcclCommInitRank(epcclComm_t* comm, int nranks, epcclUniqueId commId, int rank) {
  return guarded([&] { return init(comm, nranks, commId, rank, nullptr); });
}

epcclResult_t epcclCommInitRankConfig(epcclComm_t* comm, int nranks, epcclUniqueId commId, int rank,
                                      epcclConfig_t* config) {
  return guarded([&] { return init(comm, nranks, commId, rank, config); });
}

epcclResult_t epcclCommFinalize(epcclComm_t comm) {
  return guarded([&]() -> epccl::Status {
    EPCCL_ASSIGN(const CommPtr communicator, find_usable_communicator(comm));
    return communicator->finalize();
  });
}

epcclResult_t epcclCommDestroy(epcclComm_t comm) {
  return guarded([&] { return destroy(comm); });
}

epcclResult_t epcclCommAbort(epcclComm_t comm) {
  return guarded([&] { return abort(comm); });
}

epcclResult_t epcclCommGetAsyncError(epcclComm_t comm, epcclResult_t* asyncError) {
  return guarded([&] {
    return query(comm, "asyncError", asyncError, [](epccl::runtime::Communicator& communicator) {
      return static_cast<epcclResult_t>(communicator.poll_failure().code());
    });
  });
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
