// Sets of CPUs as the kernel and recorded files write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace epccl::topology {

/// CPU numbers, ascending, each once.
using CpuList = std::vector<int>;

/// CPUs beyond this are refused: larger than any machine, small enough to stay quick.
inline constexpr int max_cpus = 65536;

/// Those that the calling thread may run on; empty where the kernel does not say.
CpuList allowed_cpus();

/// "0-23,48-71"; "" for none.
std::string format_cpu_list(const CpuList& cpus);

/// Reads a mask of 32-bit words in hexadecimal, the highest first: "000000ff,ffff0000,00ffffff". An empty
/// text is an empty set.
Result<CpuList> parse_cpu_mask(std::string_view text);

}  // namespace epccl::topology
