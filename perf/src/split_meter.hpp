// Finds out what the time of a call goes to.
#pragma once

#include <functional>

#include "perf/src/communicator.hpp"
#include "perf/src/coordinator.hpp"
#include "perf/src/split.hpp"

namespace epccl::perf {

/// Of `iterations` of `call`, each after a barrier, and one before them that counts for nothing. Collective.
Result<Split> measure_split(Coordinator& coordinator, epcclComm_t comm, int iterations,
                            const std::function<Status()>& call);

}  // namespace epccl::perf
