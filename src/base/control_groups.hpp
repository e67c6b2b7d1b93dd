// What the control groups that this process is in (Linux cgroups, version 1 and 2) leave it. A group's limit holds for all groups
// below it, so each one upwards counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace epccl {

/// Directories of the control groups that `controller` ("cpu", "memory") limits this process by, its own first, as far up as they can
/// be seen. Empty where there are none. `proc`: of the process; `root`: before the paths it names (both are for tests).
std::vector<std::string> control_groups(std::string_view controller, const std::string& proc = "/proc/self",
                                        const std::string& root = "");

/// The smallest quota of processor time on the way up.
struct CpuQuota {
  double cores = 0;    // cores' worth of time; 0: there is no quota
  uint64_t group = 0;  // whose: a number that all processes of the machine find alike, and no other group has
};
CpuQuota cpu_quota(const std::vector<std::string>& groups = control_groups("cpu"));

}  // namespace epccl
