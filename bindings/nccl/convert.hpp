// NCCL's types and EPCCL's: the numbers are the same, and a communicator's handle is EPCCL's own.
#pragma once

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::nccl {

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
