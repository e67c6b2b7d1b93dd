// The run of a plan that is kept by its name.
#pragma once

#include <cstdint>

#include "runtime/executor/node_calls.hpp"

namespace epccl::runtime {

/// `known`: the plan, which stays until the run is over. `offload`: large copies go to a copy engine.
template <typename Planned, typename CallType>
Call run_of(const Planned& known, const CallType& call, uint64_t sequence, bool offload) {
  Call run{sequence, call.input, call.output, known.text};
  run.signature = known.signature;
  run.meaning = known.meaning;
  run.offload = offload;
  run.capture = call.capture;
  run.behind = call.behind;
  return run;
}

}  // namespace epccl::runtime
