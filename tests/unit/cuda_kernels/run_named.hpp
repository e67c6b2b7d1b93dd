// Runs the launch at hand where it is of this kernel: for the lists of kernel_list.hpp.
#pragma once

#include <cstring>

#define EPCCL_BARE(...) __VA_ARGS__
#define EPCCL_RUN(entry, body)                      \
  if (std::strcmp(launch.kernel.name, #entry) == 0) \
    return run(launch, random,                      \
               [](const HostWarp& warp, const auto& parameters) { EPCCL_BARE body(warp, parameters); });
