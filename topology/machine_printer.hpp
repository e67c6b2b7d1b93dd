// A machine for people: as a tree, and as the matrix that `nvidia-smi topo -m` prints.
#pragma once

#include <string>

#include "topology/machine.hpp"

namespace epccl::topology {

/// NUMA nodes, and below them the PCI tree down to GPUs, NICs and GPU switches (other branches are left out),
/// then the links between GPUs and what was noted.
std::string format_tree(const Machine& machine);

/// Path classes between all GPUs and NICs, CPU and NUMA affinity, and the legend.
std::string format_matrix(const Machine& machine);

/// "6 NVLinks to 6 switches, 150 GB/s": one line per GPU that has links; "" when none has.
std::string format_links(const Machine& machine);

}  // namespace epccl::topology
