// Which plans a forecast simulates: the library's own, with larger chunks where those have more steps than can be simulated.
#pragma once

#include <cstdint>

#include "algorithms/alltoall/choose.hpp"
#include "base/status.hpp"
#include "runtime/comm/comm_config.hpp"

namespace epccl::tools {

/// Of one simulated plan: some 300 bytes and 3 us each.
inline constexpr double max_steps = 1'000'000;

/// What the library would run for an alltoall of one size.
struct AlltoallPlans {
  algorithms::Choice choice;          // its cost model's, or what EPCCL_ALGO says
  algorithms::Parameters parameters;  // of both algorithms
  uint64_t library_chunk = 0;
  /// Chunks, send window and scratch are so many times as large as the library's.
  uint64_t coarseness = 1;
  /// So many of the library's chunks, and of its pieces of them, are one of two_stage's: what each costs whatever its size has to count as
  /// often.
  double chunks_as_one = 1, pieces_as_one = 1;
};

/// `cores`: that a node's ranks have. `on_gpus`: queues of GPUs run the plans. Error: what the library refuses, as scratch that is too
/// small; steps beyond `max_steps` whatever the chunks, with the number of nodes that would do.
Result<AlltoallPlans> plans_for(const topology::Cluster& cluster, uint64_t bytes_per_pair, double cores,
                                bool on_gpus, const runtime::CommConfig& config);

/// Steps of all ranks, at least and not many times as many as the plan has; of equal nodes. Builds nothing.
double estimated_steps(algorithms::Algorithm algorithm, const topology::Cluster& cluster,
                       uint64_t bytes_per_pair, const algorithms::Parameters& parameters);

}  // namespace epccl::tools
