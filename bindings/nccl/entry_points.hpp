// What each exported symbol calls: one function an entry point, with NCCL's name less its prefix.
#pragma once

#include "abi.hpp"

namespace epccl::nccl {

#define ROW(result, name, parameters, arguments) result name parameters;
#include "entry_points.inc"
#undef ROW

}  // namespace epccl::nccl
