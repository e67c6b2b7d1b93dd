// Reads a recorded machine: hwloc XML (versions 1 and 2) or NCCL topology XML (also RCCL's variant). The
// format is told by the root element.
//
// Files are not trusted: what is broken, oversized or makes no sense gives an error that says where, never a
// crash.
#pragma once

#include <string>
#include <string_view>

#include "base/status.hpp"
#include "topology/machine.hpp"

namespace epccl::topology {

/// `path` in messages and in Machine::source.
Result<Machine> read_machine(const std::string& path);

/// As read_machine() for a text in memory; `name` stands for the path.
Result<Machine> parse_machine(std::string_view xml, const std::string& name);

}  // namespace epccl::topology
