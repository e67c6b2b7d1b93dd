// epcclConfig_t, read and checked.
#pragma once

#include "base/status.hpp"
#include "epccl/epccl.h"
#include "runtime/comm/comm_config.hpp"

namespace epccl::api {

/// NULL: the defaults. A config of an older or newer library is read as far as both know it.
Result<runtime::CommOptions> read_config(const epcclConfig_t* config);

}  // namespace epccl::api
