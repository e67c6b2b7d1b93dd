// What the counters of a node's ranks say: in which call a rank is, and how far. They never need a reset, and last for a long while.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "device/device.hpp"
#include "plan/plan.hpp"

namespace epccl::runtime {

/// Of a plan's values, which begin anew in each call.
inline constexpr int value_bits = 24;

/// Counter values of one call are above all of earlier calls.
constexpr uint64_t counter_value(uint64_t sequence, uint32_t value) {
  return sequence << value_bits | value;
}

/// The number of the last call of a communicator: what comes after it is for ranks that let queues through. With a call in a microsecond that
/// is after three days.
inline constexpr uint64_t last_call = (device::released >> value_bits) - 1;
static_assert(counter_value(last_call, (1U << value_bits) - 1) < device::released);

/// Whether there is a call of that number; the same on every rank.
Status check_number(uint64_t sequence);

/// Whether the values of all the plan's steps fit; the same on every rank of a node whose plans belong together.
Status check_values(const plan::RankPlan& plan);

}  // namespace epccl::runtime
