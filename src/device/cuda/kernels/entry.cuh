// A kernel around a body.
#pragma once

#include "device/cuda/kernels/body/warp.hpp"
#include "device/cuda/kernels/launch.hpp"

#define EPCCL_BARE(...) __VA_ARGS__
// Registers for two blocks a multiprocessor: without this bound compilers spill some to have more blocks.
#define EPCCL_KERNEL(name, Parameters, body)                     \
  extern "C" __global__ void __launch_bounds__(block_threads, 2) \
      name(const __grid_constant__ Parameters parameters) {      \
    EPCCL_BARE body(DeviceWarp(), parameters);                   \
  }
