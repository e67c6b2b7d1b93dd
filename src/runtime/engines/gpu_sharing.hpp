// Which ranks of a node use this rank's GPU, and whose work it does at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace epccl::runtime {

/// Where a rank of the node runs.
struct RankPlace {
  uint64_t gpu = 0;  // device::Device::place(); 0: not known
  int64_t pid = 0;
};

struct GpuSharing {
  std::vector<bool> here;  // by local position: the rank uses this GPU
  int ranks = 0;           // so many, this one too; 0: its own place is not known
  int at_once = 1;         // of these, ranks whose work runs while this one's does
};

/// `ranks` by local position, of which `local` is this one. Processes that a GPU does not serve at once take turns, a millisecond or two
/// each: while this rank's work runs, the GPU has no other process's.
GpuSharing find_sharing(std::span<const RankPlace> ranks, int local, bool serves_processes_at_once);

}  // namespace epccl::runtime
