// What the ranks of a node share, and what they may do with each other's memory.
#pragma once

#include "base/status.hpp"
#include "runtime/comm/comm_parts.hpp"

namespace epccl::runtime {

/// Sets `parts.node`. All ranks of the communicator call it at once, as they do what follows.
Status open_node_memory(CommParts& parts);

/// Sets `parts.direct`; where ranks may not open what others of their node allocate, these hand it over from then on.
Status agree_on_access(CommParts& parts);

}  // namespace epccl::runtime
