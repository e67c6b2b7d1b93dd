// A kernel around a body.
#pragma once

#include "device/kernels/body/warp.hpp"
#include "device/kernels/launch.hpp"

#define EPCCL_BARE(...) __VA_ARGS__
// `blocks`: as many that a multiprocessor has registers for at once, at least. Without this bound compilers spill some to have more.
#define EPCCL_KERNEL(name, Parameters, blocks, body)                  \
  extern "C" __global__ void __launch_bounds__(block_threads, blocks) \
      name(const __grid_constant__ Parameters parameters) {           \
    EPCCL_BARE body(DeviceWarp(), parameters);                        \
  }
// One that waits for others beside whatever else runs: its warp fits into the registers that products leave, which take all but 1024 of
// a multiprocessor.
#define EPCCL_WAITING_KERNEL(name, Parameters, body)                                               \
  extern "C" __global__ void __maxnreg__(32) name(const __grid_constant__ Parameters parameters) { \
    EPCCL_BARE body(DeviceWarp(), parameters);                                                     \
  }
