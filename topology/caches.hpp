// How much the last-level caches keep, as the kernel says. Virtual machines may be told what their host has.
#pragma once

#include <cstdint>
#include <string>

#include "topology/cpu_list.hpp"

namespace epccl::topology {

/// The last-level caches' bytes of these CPUs: of a cache that other CPUs share, their part of it. 0: unknown.
uint64_t last_level_cache_bytes(const CpuList& cpus, const std::string& sysfs = "/sys/devices/system/cpu");

}  // namespace epccl::topology
