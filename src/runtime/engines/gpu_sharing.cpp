#include "runtime/engines/gpu_sharing.hpp"

#include <algorithm>

namespace epccl::runtime {

GpuSharing find_sharing(std::span<const RankPlace> ranks, int local, bool serves_processes_at_once) {
  const RankPlace& own = ranks[static_cast<size_t>(local)];
  GpuSharing found;
  int at_once = 0;
  for (const RankPlace& rank : ranks) {
    const bool is_here = own.gpu != 0 && rank.gpu == own.gpu;
    found.here.push_back(is_here);
    found.ranks += is_here ? 1 : 0;
    at_once += is_here && (serves_processes_at_once || rank.pid == own.pid) ? 1 : 0;
  }
  found.at_once = std::max(at_once, 1);
  return found;
}

}  // namespace epccl::runtime
