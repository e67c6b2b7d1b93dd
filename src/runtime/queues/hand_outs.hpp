// Where a relay's received rows go, as the kernel that hands out a block of them reads it (plan/hand_outs.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "device/kernels/parameters.hpp"
#include "runtime/queues/device_program.hpp"
#include "runtime/queues/row_feed.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

struct HandOutTable {
  std::vector<HandOutRows> hand_outs;  // as the program's
  std::vector<device::kernels::Target> targets;
};
/// Of a program with its present tables. The table depends on these and on how messages are cut, not on the length of rows.
HandOutTable make_hand_out_table(const DeviceProgram& program, const topology::Cluster& cluster);

}  // namespace epccl::runtime
