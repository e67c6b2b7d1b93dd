// NVIDIA's management library, opened at run time: GPUs and their NVLinks.
#pragma once

#include <string>

#include "base/status.hpp"
#include "topology/machine_builder.hpp"

namespace epccl::topology {

/// Adds what NVML knows to GPUs found before (joined by bus id), and GPUs that PCI does not show. Error when
/// the library is not there or refuses to start; the builder is then unchanged.
Status add_nvml_gpus(MachineBuilder& builder, const std::string& library = "libnvidia-ml.so.1");

}  // namespace epccl::topology
