// This machine, as it is now.
#pragma once

#include "base/status.hpp"
#include "topology/machine.hpp"

namespace epccl::topology {

/// What hwloc sees (NUMA, PCI, network devices), joined by bus id with NVML's GPUs and links, libibverbs'
/// ports, and the kernel's network interfaces of this network namespace. The libraries are opened at run
/// time; what is not installed is left out and noted. Takes milliseconds to a second: call it once. Error
/// only when hwloc fails.
Result<Machine> discover_machine();

}  // namespace epccl::topology
