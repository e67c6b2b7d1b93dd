// The facts of this machine and this process that a preflight is judged by.
#pragma once

#include "topo/preflight.hpp"
#include "topology/machine.hpp"

namespace epccl::tools {

/// Asks the library what it would use, and the kernel what it allows. Starts two short-lived processes, as like each other as two
/// ranks are, to see whether one may read the other's memory; leaves nothing behind. Takes milliseconds (more where there
/// are GPUs, whose driver is initialised).
PreflightFacts gather_facts(const topology::Machine& machine, int nodes, int ranks_per_node);

/// How many cores' worth of time the control group at `cgroup` allows, version 1 or 2; 0 = no quota.
double cpu_quota(const std::string& cgroup);

/// Bytes that a process may still take: of the machine's, and of what the control group (version 2) at `cgroup` is limited to.
uint64_t memory_left(const std::string& cgroup);

}  // namespace epccl::tools
