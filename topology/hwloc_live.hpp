// This machine as hwloc sees it.
#pragma once

#include "base/status.hpp"
#include "topology/hwloc_object.hpp"

struct hwloc_topology;  // the library's; its header is not needed here

namespace epccl::topology {

/// What the library has loaded, without links.
HwlocTree hwloc_tree(hwloc_topology* topology);

/// Leaves out hwloc's plugins that would initialise GPU runtimes in this process; so there are no links.
Result<HwlocTree> read_hwloc_live();

}  // namespace epccl::topology
