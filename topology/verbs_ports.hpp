// RDMA ports of this machine, through libibverbs opened at run time.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "topology/machine_builder.hpp"

namespace epccl::topology {

/// Adds speed, state, GUID and kind to ports found before (joined by device name and port), and ports that
/// hwloc did not show. Error when the library is not there; built without its header, always.
Status add_verbs_ports(MachineBuilder& builder, const std::string& library = "libibverbs.so.1");

/// Nominal Mbit/s of an InfiniBand link from the codes of the specification; 0 for codes it does not have.
int64_t infiniband_mbit(unsigned active_width, unsigned active_speed);

}  // namespace epccl::topology
