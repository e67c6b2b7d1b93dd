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
  /// Makes what this rank tells.
  void tell(const Blocks& blocks);
  /// `peer` has told its counts: whether it has a large block for this rank, and where.
  void hear(int peer, const std::byte* told);
  /// Keeps what all have told, while that lies in their scratch.
  void keep_all();
  /// Which two ranks do not agree, if any.
  Status find_disagreement() const;
  bool is_large(uint64_t bytes) const { return bytes > slot_bytes(); }
  plan::Step& step(uint32_t index) { return plan_.steps[index].step; }

  const topology::Cluster& cluster_;
  const int rank_;
  const algorithms::Parameters& parameters_;
  Executor& executor_;
  algorithms::FittedPlan steps_;
  CompiledPlan plan_;
  std::vector<std::byte> tells_;        // BlockSums, and a BlockEntry for each rank
  std::vector<const std::byte*> told_;  // by rank, where it lies
  int heard_ = 0;                       // ranks, in this call
  algorithms::BlockSums sums_;          // of those, and of this one
  std::vector<std::byte> kept_;         // what all have told, by rank, where they do not agree
  const std::function<void(int, const std::byte*)> hear_ = [this](int local, const std::byte* told) {
    hear(local, told);
  };
};

}  // namespace epccl::runtime
