// How the ranks of a node enter and leave a call in which they use each other's buffers.
#pragma once

#include <array>
#include <vector>

#include "plan/plan.hpp"
#include "topology/cluster.hpp"

namespace epccl::algorithms {

/// Says that this rank's buffers are ready, and knows when the others' are.
class NodeGate {
 public:
  static constexpr uint16_t slots = 2;  // counters it uses: 0 and 1

  NodeGate(plan::Builder& builder, const topology::Cluster& cluster, int rank)
      : builder_(builder), rank_(rank), members_(cluster.members(cluster.node_of(rank))) {
    if (members_.size() > 1) builder_.enter(ready_slot);
    ready_.assign(members_.size(), not_asked);
  }

  /// The step after which the buffers of the rank at `local` may be used.
  uint32_t ready(size_t local) {
    if (ready_[local] == not_asked)
      ready_[local] = members_[local] == rank_ ? plan::Builder::none
                                               : builder_.wait_for_entry(0, members_[local], ready_slot);
    return ready_[local];
  }

  /// After `last`, this rank is through with the others' buffers; waits until they are through with its own.
  void leave(const std::vector<uint32_t>& last) {
    if (members_.size() < 2) return;
    builder_.post(2, through_slot, 1, last);
    for (const int member : members_)
      if (member != rank_) builder_.wait(2, member, through_slot, 1);
  }

 private:
  static constexpr uint16_t ready_slot = 0, through_slot = 1;
  static constexpr uint32_t not_asked = plan::Builder::none - 1;

  plan::Builder& builder_;
  const int rank_;
  const std::vector<int>& members_;
  std::vector<uint32_t> ready_;
};

}  // namespace epccl::algorithms
