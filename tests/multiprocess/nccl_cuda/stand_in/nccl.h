// In place of NVIDIA's header, so that these tests are built where CUDA's headers are absent.
#pragma once

#include "nccl/abi.hpp"

#define ROW(result, name, parameters, arguments) extern "C" result nccl##name parameters;
#include "nccl/entry_points.inc"
#undef ROW
