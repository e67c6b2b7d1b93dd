// The way out of every entry point: a code, and where ncclGetLastError() finds its text.
#pragma once

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::nccl {

/// A refusal by this library: keeps its text.
ncclResult_t refuse(const Status& status);

/// The result of a call into EPCCL, which keeps its own text.
ncclResult_t from_native(epcclResult_t result);

/// The result of a call into the real NCCL, which keeps its own text.
ncclResult_t from_real(ncclResult_t result);

}  // namespace epccl::nccl
