#include "runtime/executor/placement.hpp"

#include <sched.h>

namespace epccl::runtime {

int home_core(size_t position, size_t ranks, size_t first_node) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return -1;
  const auto cores = static_cast<size_t>(CPU_COUNT(&allowed));
  size_t place = (position * cores / ranks + first_node) % cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed) && place-- == 0) return core;
  return -1;
}

void go_to_core(int core) {
  if (core < 0 || sched_getcpu() == core) return;
  cpu_set_t allowed, one;
  CPU_ZERO(&allowed);
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || !CPU_ISSET(core, &allowed)) return;
  if (sched_setaffinity(0, sizeof one, &one) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace epccl::runtime
