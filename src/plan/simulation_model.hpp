// What a simulation takes a cluster for: rates and times, and what they make of a plan's steps.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "plan/equal_share.hpp"
#include "plan/link_bytes.hpp"
#include "plan/plan.hpp"
#include "topology/cluster.hpp"

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

/// Whether it can be simulated: invalid_argument, with the value that is out of range.
Status check(const SimulationModel& model);

/// What a step does in memory; no rows where it does nothing there.
struct MemoryWork {
  uint64_t rows = 0, bytes = 0;
};
MemoryWork memory_work(const RankPlan& plan, const Step& step);

/// A cluster of such machines. A *port* is a network link of a node, counted over all nodes. What it is made of must outlive it.
class SimulatedCluster {
 public:
  SimulatedCluster(const topology::Cluster& cluster, const SimulationModel& model)
      : cluster_(cluster), model_(model) {}

  int links_per_node() const;
  /// That a rank uses.
  int port_of(int rank) const;
  std::vector<double> port_rates() const;
  /// SimulationModel::network_grain, where it is automatic: for a plan that moves so many bytes.
  Ticks network_grain(const LinkBytes& links) const;
  /// Bytes at `copy_rate` that take as long as the step's memory work.
  uint64_t weighted_bytes(const RankPlan& plan, const Step& step) const;

 private:
  double busiest_link(const LinkBytes& links) const;
  double slowness(int from, int to) const;

  const topology::Cluster& cluster_;
  const SimulationModel& model_;
};

}  // namespace epccl::plan
