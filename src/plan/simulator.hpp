// Runs a plan in virtual time on a described cluster.
//
//   copy:  [CPU of the rank, a core of the node: alpha ........ bytes at the rank's share of the node's copy
//   bandwidth] send:  [CPU: sender overhead][bytes at a fair share of egress and ingress]  <- the send is
//   complete recv:                                                    [latency][CPU: receiver overhead]  <-
//   complete post -> wait: signal latency
//   move_rows: as a copy of that many rows; reduce, reduce_rows: as a copy of all that they read
//
// A rank's CPU does one thing at a time, the earliest ready step (by index) first. Messages are buffered: a
// transfer does not wait for its recv to be started, but a recv is complete only after both. Times are kept
// in whole picoseconds, so that symmetric plans stay symmetric and every run of the same plan gives the same
// result.
#pragma once

#include "base/status.hpp"
#include "plan/plan.hpp"
#include "plan/simulation_model.hpp"
#include "plan/timeline.hpp"

namespace epccl::plan {

/// Simulates a plan. Errors: a plan whose messages or signals do not match, or that stops before every step
/// is complete (internal_error, naming the first such step); a model with a rate or time out of range
/// (invalid_argument). Data is not looked at: verify() does that.
Result<Timeline> simulate(const Plan& plan, const SimulationModel& model = {});

}  // namespace epccl::plan
