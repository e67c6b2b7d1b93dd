// How many blocks a sum, or copies by cores, need to keep up with what feeds them: as few as that takes, since the rest of the GPU
// is the program's. No CUDA types.
//
// Little's law: what is under way = throughput * latency. A block has so many bytes of loads under way at once, so
//
//   blocks = bytes per second to keep up with * latency of a load / bytes that a block has under way
//
// (V. Volkov, "Better performance at lower occupancy", GTC 2010, uses the law so; the latencies are of W. Luo et al., "Benchmarking and
// dissecting the Nvidia Hopper GPU architecture through microbenchmarking", arXiv 2402.13499: about 470 cycles on A100 and H100, without load.)
// What a GPU needs under load has not been measured here: tests/device/run measures sums and copies with other numbers of blocks beside
// this one, and EPCCL_MAX_CTAS overrides it.
#pragma once

#include <cstdint>

#include "device/device.hpp"

namespace epccl::device::cuda {

/// Bytes a second; 0: not known.
struct GpuSpeeds {
  uint32_t multiprocessors = 0;
  double memory = 0;  // of reads and writes together: bus width * clock * 2
  double link = 0;    // from other GPUs, all of them together
};

/// What GPUs of a compute capability get from others over all their NVLinks; those that nothing is known of: what a PCIe 5 slot gives. Too
/// much of it costs blocks, too little would cost bandwidth.
double link_speed(int major, int minor);

/// At least 1, at most what runs on the GPU at once.
uint32_t fewest_blocks(const GpuSpeeds& speeds, const Demand& demand);

}  // namespace epccl::device::cuda
