// NCCL's types and EPCCL's: the numbers are the same, and a communicator's handle is EPCCL's own.
#pragma once

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::nccl {

/// Of two enums.
template <typename Theirs, typename Ours>
constexpr bool is(Theirs theirs, Ours ours) {
  return static_cast<int>(theirs) == static_cast<int>(ours);
}
static_assert(is(ncclSuccess, epcclSuccess) && is(ncclUnhandledCudaError, epcclUnhandledDeviceError) &&
              is(ncclSystemError, epcclSystemError) && is(ncclInternalError, epcclInternalError) &&
              is(ncclInvalidArgument, epcclInvalidArgument) && is(ncclInvalidUsage, epcclInvalidUsage) &&
              is(ncclRemoteError, epcclRemoteError) && is(ncclInProgress, epcclInProgress) &&
              is(ncclNumResults, epcclNumResults));
// What this library finds itself is a Code; those are EPCCL's (api/handles/last_error.cpp).
static_assert(is(ncclSystemError, Code::system_error) && is(ncclInvalidArgument, Code::invalid_argument) &&
              is(ncclInvalidUsage, Code::invalid_usage) && is(ncclRemoteError, Code::remote_error));
static_assert(is(ncclInt8, epcclInt8) && is(ncclUint8, epcclUint8) && is(ncclInt32, epcclInt32) &&
              is(ncclUint32, epcclUint32) && is(ncclInt64, epcclInt64) && is(ncclUint64, epcclUint64) &&
              is(ncclFloat16, epcclFloat16) && is(ncclFloat32, epcclFloat32) &&
              is(ncclFloat64, epcclFloat64) && is(ncclBfloat16, epcclBfloat16) &&
              is(ncclFloat8e4m3, epcclFloat8e4m3) && is(ncclFloat8e5m2, epcclFloat8e5m2) &&
              is(ncclNumTypes, epcclNumTypes));
static_assert(is(ncclSum, epcclSum) && is(ncclProd, epcclProd) && is(ncclMax, epcclMax) &&
              is(ncclMin, epcclMin) && is(ncclAvg, epcclAvg) && is(ncclNumOps, epcclNumOps));
static_assert(is(ncclScalarDevice, epcclScalarDevice) &&
              is(ncclScalarHostImmediate, epcclScalarHostImmediate));

inline epcclComm_t native(ncclComm_t comm) {
  return reinterpret_cast<epcclComm_t>(comm);
}
inline epcclComm_t* native(ncclComm_t* comm) {
  return reinterpret_cast<epcclComm_t*>(comm);
}
inline epcclDataType_t native(ncclDataType_t datatype) {
  return static_cast<epcclDataType_t>(datatype);
}

/// CUDA's handles for "the default stream" (legacy 0x1, per thread 0x2) mean EPCCL's NULL stream. All others must be EPCCL's own.
inline epcclStream_t native(cudaStream_t stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2 ? nullptr : reinterpret_cast<epcclStream_t>(stream);
}

/// For EPCCL's calls on CUDA memory: NULL is CUDA's legacy default stream, by its name.
inline epcclStream_t native_cuda(cudaStream_t stream) {
  constexpr uintptr_t legacy = 1;
  return reinterpret_cast<epcclStream_t>(stream == nullptr ? legacy : reinterpret_cast<uintptr_t>(stream));
}

inline bool is_failure(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}
/// A failure before what is in progress, and that before success; of two failures the first.
inline ncclResult_t worse(ncclResult_t a, ncclResult_t b) {
  if (is_failure(a)) return a;
  return b != ncclSuccess ? b : a;
}

/// With the text of a failure.
inline Status status_of(epcclResult_t result) {
  if (result == epcclSuccess) return {};
  return {static_cast<Code>(result), epcclGetLastError(nullptr)};
}

}  // namespace epccl::nccl
