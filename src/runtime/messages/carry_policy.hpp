// When messages of a group are carried, and how long anybody waits for it.
#pragma once

#include <cstdint>

#include "algorithms/alltoall/choose.hpp"

namespace epccl::runtime {

/// EPCCL_GROUP_AGGREGATE.
enum class Aggregate : uint8_t { never, always, automatic };

struct CarryPolicy {
  Aggregate aggregate = Aggregate::automatic;
  algorithms::CostParameters cost;
  double gather_seconds = 20e-6;     // a carrier waits for the parcels of others before it writes
  double patience_seconds = 100e-6;  // an origin waits for its carrier
  double tail_seconds = 50e-3;       // a lane may stand still with half a frame
  double leave_seconds = 1e-3;       // the same, when the carrier has nothing else to do in its call
};

}  // namespace epccl::runtime
