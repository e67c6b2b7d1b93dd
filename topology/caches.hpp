// How much the last-level caches keep, as the kernel says. Virtual machines may be told what their host has.
#pragma once

#include <cstdint>
#include <string>

#include "topology/cpu_list.hpp"

namespace epccl::topology {

struct LastLevelCaches {
  uint64_t total =
      0;  // bytes of all; of a cache that other CPUs share, too, these CPUs' part of it. 0: unknown
  uint64_t largest = 0;  // likewise, of one of them: no CPU has more than that close at hand
};
LastLevelCaches last_level_caches(const CpuList& cpus, const std::string& sysfs = "/sys/devices/system/cpu");

}  // namespace epccl::topology
