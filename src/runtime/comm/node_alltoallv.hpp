// alltoallv of a communicator on one node, by cores: no counts are exchanged beforehand, and no plan is made for a call.
#pragma once

#include <string>
#include <vector>

#include "algorithms/alltoall/alltoall.hpp"
#include "algorithms/alltoall/node_alltoallv.hpp"
#include "base/status.hpp"
#include "runtime/executor/executor.hpp"

namespace epccl::runtime {

class NodeAlltoallv {
 public:
  /// Counts and offsets in bytes, ranks entries each.
  struct Blocks {
    const std::vector<uint64_t>&send_bytes, &send_offsets, &recv_bytes, &recv_offsets;
  };

  /// Blocks up to `parameters.eager_limit` go through scratch.
  NodeAlltoallv(const topology::Cluster& cluster, int rank, const algorithms::Parameters& parameters,
                Executor& executor)
      : cluster_(cluster), rank_(rank), parameters_(parameters), executor_(executor) {}

  /// The same on every rank: one node, whose ranks can read each other's input, and scratch for all small blocks.
  bool possible() const;

  /// An error on all ranks where two disagree about a count. `text` as in Call.
  Status run(const std::string& text, const void* input, void* output, const Blocks& blocks);

 private:
  uint64_t slot_bytes() const { return parameters_.eager_limit; }
  void open();
  void fit_small(const Blocks& blocks);
  void fit_large(const Blocks& blocks);
  /// Whether all ranks agree; what is the largest block of any of them.
  Result<uint64_t> check_heard() const;
  const algorithms::BlockEntry& heard(int rank, int peer) const;

  const topology::Cluster& cluster_;
  const int rank_;
  const algorithms::Parameters& parameters_;
  Executor& executor_;
  algorithms::FittedPlan small_steps_, large_steps_;
  CompiledPlan small_, large_;
  std::vector<algorithms::BlockEntry> heard_;  // ranks x ranks; this rank's own row is what it tells
};

}  // namespace epccl::runtime
