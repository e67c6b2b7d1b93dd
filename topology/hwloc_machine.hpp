// From hwloc's objects to a Machine.
#pragma once

#include "base/status.hpp"
#include "topology/hwloc_object.hpp"
#include "topology/machine_builder.hpp"

namespace epccl::topology {

/// Adds NUMA nodes, PCI tree, GPUs, NICs and GPU links.
Status add_hwloc_objects(const HwlocTree& tree, MachineBuilder& builder);

}  // namespace epccl::topology
