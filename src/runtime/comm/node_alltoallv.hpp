// alltoallv of a communicator on one node, by cores: no counts are exchanged beforehand, and no plan is made for a call.
#pragma once

#include <functional>
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
  /// By this rank's own counts.
  void fit(const Blocks& blocks);
  void fit_own(const Blocks& blocks);
  void fit_sent(int peer, uint64_t bytes, uint64_t offset);
  void fit_received(int peer, uint64_t bytes, uint64_t offset);
  /// `peer` has told its counts: whether it has a large block for this rank, and where.
  void has_heard(int peer);
  /// Whether all ranks agree.
  Status check_heard() const;
  const algorithms::BlockEntry& heard(int rank, int peer) const;
  bool is_large(uint64_t bytes) const { return bytes > slot_bytes(); }
  plan::Step& step(uint32_t index) { return plan_.steps[index].step; }

  const topology::Cluster& cluster_;
  const int rank_;
  const algorithms::Parameters& parameters_;
  Executor& executor_;
  algorithms::FittedPlan steps_;
  CompiledPlan plan_;
  std::vector<algorithms::BlockEntry> heard_;  // ranks x ranks; this rank's own row is what it tells
  const std::function<void(int local)> has_heard_ = [this](int local) { has_heard(local); };
};

}  // namespace epccl::runtime
