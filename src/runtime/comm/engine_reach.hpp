// Whether copy engines can make a communicator's calls on GPU memory: found out by trying, and the same on every rank.
#pragma once

#include <string>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/comm/communicator.hpp"

namespace epccl::runtime {

struct EngineReach {
  bool is_enough = false;
  std::string why_not;  // the first rank's that has a reason
};

/// Every rank calls it, from work passed to run(). `mine`: this rank's GPU, or why it has none. Each rank allocates a little and
/// maps what the others of its node allocated. On several nodes the network has to read and write GPU memory where it lies, too.
Result<EngineReach> find_engine_reach(Communicator& communicator, const Result<device::Device*>& mine);

}  // namespace epccl::runtime
