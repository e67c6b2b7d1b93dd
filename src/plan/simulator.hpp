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

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "plan/link_bytes.hpp"
#include "plan/plan.hpp"

namespace epccl::plan {

/// The machine. Times in seconds, rates in bytes per second; every rate must be positive, every time not
/// negative.
struct SimulationModel {
  // Network: each node has one full-duplex link, `network_rate` out and `network_rate` in,
  double network_rate = 12.5e9;
  /// or, where this is not empty, several, with these rates. A rank's messages leave and arrive by one of them: local
  /// position l uses link_of_local[l], positions beyond that list take turns.
  std::vector<double> link_rates = {};
  std::vector<int> link_of_local = {};
  double network_latency = 5e-6;      // last byte sent to last byte arrived
  double sender_overhead = 0.3e-6;    // CPU time of the sending rank per message
  double receiver_overhead = 0.3e-6;  // CPU time of the receiving rank per message
  // Memory.
  double copy_latency = 0.1e-6;    // per copy
  double copy_row_latency = 5e-9;  // per row after the first
  double copy_rate = 10e9;         // of one rank alone
  /// From the memory of one local position to another's, [from][to]: for copies, moved rows and what a sum reads, where
  /// both positions are in the table and the rate is not 0; else `copy_rate`. (Sums of rows are made at `copy_rate`.) In
  /// `node_copy_rate` a slower copy counts as much as one at `copy_rate` that takes as long.
  std::vector<std::vector<double>> peer_copy_rates = {};
  double node_copy_rate = 80e9;    // of all ranks of a node together
  int cores_per_node = 0;          // ranks of a node share them; 0: a core for every rank
  double signal_latency = 0.1e-6;  // post to wait
  /// Network flows end, and rates are shared out anew, at multiples of this time. 0: whenever a flow starts
  /// or ends, exact. A grain makes huge irregular plans faster to simulate; bytes stay exact. `automatic`: 0,
  /// but for plans with many messages between many nodes 1/2000 of the time that the busiest link needs at
  /// least.
  double network_grain = automatic;
  static constexpr double automatic = -1;
};

struct StepTime {
  double start = 0;  // copy, send: the CPU takes it up; others: its dependencies are complete
  double end = 0;
};

/// One direction of a node's network link, or a node's memory.
struct LinkLoad {
  uint64_t bytes = 0;  // exact
  double busy = 0;     // seconds with at least one transfer in progress
};

struct Timeline {
  double total = 0;                          // seconds until the last step is complete
  std::vector<std::vector<StepTime>> ranks;  // [rank][step]
  int links_per_node = 1;                    // network links
  std::vector<LinkLoad> egress, ingress;     // per network link: [node * links_per_node + link]
  std::vector<LinkLoad> memory;              // per node: copies, moved rows, rows that sums read
  LinkBytes links;
};

/// Simulates a plan. Errors: a plan whose messages or signals do not match, or that stops before every step
/// is complete (internal_error, naming the first such step); a model with a rate or time out of range
/// (invalid_argument). Data is not looked at: verify() does that.
Result<Timeline> simulate(const Plan& plan, const SimulationModel& model = {});

}  // namespace epccl::plan
