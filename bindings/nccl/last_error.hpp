// The way out of every entry point: a code, and where ncclGetLastError() finds its text.
#pragma once

#include <exception>

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::nccl {

/// A refusal by this library: keeps its text. Throws where there is no memory for it.
ncclResult_t refuse(const Status& status);
/// The same of what was thrown, which it says if there is memory for that. Never throws.
ncclResult_t refuse_thrown(const std::exception& failure);
/// The text of the last error where there is no memory for one.
inline constexpr const char* no_memory_for_text = "out of memory: there is none for a longer text either";

/// The result of a call into EPCCL, which keeps its own text.
ncclResult_t from_native(epcclResult_t result);

/// The result of a call into the real NCCL, which keeps its own text.
ncclResult_t from_real(ncclResult_t result);

}  // namespace epccl::nccl
