// The facts of this machine and this process that a preflight is judged by.
#pragma once

#include <string>
#include <vector>

#include "topo/preflight.hpp"
#include "topology/machine.hpp"

namespace epccl::tools {

/// Asks the library what it would use, and the kernel what it allows. Starts two short-lived processes, as like each other as two
/// ranks are, to see whether one may read the other's memory; leaves nothing behind. Takes milliseconds (more where there
/// are GPUs, whose driver is initialised).
PreflightFacts gather_facts(const topology::Machine& machine, int nodes, int ranks_per_node);

/// Bytes that a process may still take: of the machine's, and of what each of its control groups (version 1 or 2) is limited to.
uint64_t memory_left(const std::vector<std::string>& groups);

}  // namespace epccl::tools
