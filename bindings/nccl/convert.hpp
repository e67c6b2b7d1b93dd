// NCCL's types and EPCCL's: the numbers are the same, and a communicator's handle is EPCCL's own.
#pragma once

#include "abi.hpp"
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

}  // namespace epccl::nccl
