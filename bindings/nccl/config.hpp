// Reading ncclConfig_t and ncclSimInfo_t of programs that were built with an older, the same or a newer nccl.h.
#pragma once

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::nccl {

/// `given` as this version of NCCL reads it: as many bytes as both know, fields newer than `given->version` undefined, every
/// value in its range. `given` NULL: all undefined.
Result<ncclConfig_t> read_config(const ncclConfig_t* given);

/// What of it EPCCL acts on; the rest are hints for NVIDIA's hardware. Points into `config`.
epcclConfig_t native_config(const ncclConfig_t& config);

/// Checks size and magic. Error: not made with NCCL_SIM_INFO_INITIALIZER.
Status check_sim_info(const ncclSimInfo_t* given);

}  // namespace epccl::nccl
