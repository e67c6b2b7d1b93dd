// This machine as hwloc sees it.
#pragma once

#include "base/status.hpp"
#include "topology/hwloc_object.hpp"

namespace epccl::topology {

/// Leaves out hwloc's plugins that would initialise GPU runtimes in this process; so there are no links.
Result<HwlocTree> read_hwloc_live();

}  // namespace epccl::topology
