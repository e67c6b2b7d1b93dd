#include "runtime/executor/placement.hpp"

#include <sched.h>

#include <array>
#include <cerrno>
#include <vector>

#include "base/core_mask.hpp"
#include "base/log.hpp"
#include "base/status.hpp"

namespace epccl::runtime {

int home_core(size_t position, size_t ranks, size_t first_node) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) return -1;
  return cores[(position * cores.size() / ranks + first_node) % cores.size()];
}

// What it was may be refused: its cores were taken from this process meanwhile. Left on this one it would share that, maybe for ever; so it
// gets all that the process has now, as the kernel does with threads whose cores are gone.
void go_to_core(int core) {
  if (core < 0 || sched_getcpu() == core) return;
  const CoreMask before = CoreMask::of_this_thread(), one(std::array{core});
  if (!before.has(core) || !one.apply() || before.apply() || CoreMask::all().apply()) return;
  log::warn(log::coll, -1, "a thread that went to core {} is bound to it from now on: {}", core,
            text_of_error(errno));
}

}  // namespace epccl::runtime
