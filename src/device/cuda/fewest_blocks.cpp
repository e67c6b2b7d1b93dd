#include "device/cuda/fewest_blocks.hpp"

#include <algorithm>
#include <cmath>

#include "device/kernels/launch.hpp"

namespace epccl::device::cuda {
namespace {

// Of a load from the GPU's own memory while that is busy: twice what it is when idle. From another GPU's, over NVLink.
constexpr double latency = 600e-9, remote_latency = 1200e-9;

// Each thread has two 16-byte loads under way at least: sums of two-byte elements; others have four.
constexpr double block_bytes_under_way = 2.0 * 16 * kernels::block_threads;

// Blocks of 256 threads that a multiprocessor runs at once with the registers that they need.
constexpr uint32_t resident = 4;

/// Bytes that a sum, or copies, read and write for each byte that comes from other devices.
double local_bytes_of_a_fetched(const Demand& demand) {
  const double sources = std::max(demand.sources, 2);
  return (sources + 1) / (sources - 1);
}

}  // namespace

double link_speed(int major, int minor) {
  constexpr double gigabyte = 1e9;
  if (major == 8 && minor == 0) return 300 * gigabyte;  // A100: 12 links of 25 GB/s each way
  if (major == 9) return 450 * gigabyte;                // H100, H200: 18 of 25
  if (major == 10) return 900 * gigabyte;               // B200: 18 of 50
  return 64 * gigabyte;
}

uint32_t fewest_blocks(const GpuSpeeds& speeds, const Demand& demand) {
  const uint32_t most = std::max(speeds.multiprocessors, 1U) * resident;
  const double share = 1.0 / std::max(demand.sharing, 1);
  double needed = speeds.memory * share, of_a_load = latency;
  if (demand.from == Demand::From::fetched)
    needed = std::min(needed, speeds.link * local_bytes_of_a_fetched(demand));
  if (demand.from == Demand::From::peers) {
    needed = std::min(needed, speeds.link);
    of_a_load = remote_latency;
  }
  if (needed <= 0) return most;
  const double blocks = std::ceil(needed * of_a_load / block_bytes_under_way);
  return static_cast<uint32_t>(std::clamp(blocks, 1.0, static_cast<double>(most)));
}

}  // namespace epccl::device::cuda
