// NVIDIA's NCCL, opened when something first needs it.
#pragma once

#include <string>
#include <string_view>

#include "abi.hpp"
#include "base/status.hpp"

namespace epccl::nccl {

/// Its entry points; one that its version does not have is null.
struct RealNccl {
#define ROW(result, name, parameters, arguments) result(*name) parameters = nullptr;
#include "entry_points.inc"
#undef ROW
  std::string path;
  int version = 0;
};

/// Opens it at the first call: EPCCL_NCCL_LIB, or the system's libnccl.so.2 that is not this library. Error: what was tried,
/// and why it failed; the same at every call.
const Result<RealNccl>& real_nccl();

/// The library if real_nccl() has opened it, else null. Opens nothing.
const RealNccl* opened_real_nccl();

/// Error, where `there` is false: names the entry point and the library that lacks it.
Status check_has(const RealNccl& real, bool there, std::string_view name);

}  // namespace epccl::nccl
