// Which copy of an expert a token goes to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "topology/cluster.hpp"

namespace epccl::ep {

/// Even: all copies in turn, so that each gets its share whoever asks. Near: in turn those of the own rank, else those of the own node, else all.
enum class SlotChoice : uint8_t { even, near };

/// For one rank's tables of experts. Each table begins anew, with copies that differ from rank to rank: a table's
/// slots depend on it and the rank alone.
class SlotChooser {
 public:
  SlotChooser(const topology::Cluster& cluster, int slots_per_rank, std::span<const int> placement,
              int experts, int rank, SlotChoice choice);

  /// `table`: experts, or -1 for unused, which stays. Error: an expert that there is not, or that no slot holds; `slots` is undefined then.
  template <typename Index>
  Status choose(std::span<const Index> table, std::span<Index> slots);

 private:
  std::vector<uint32_t> first_;  // of each expert, in slots_; and the end
  std::vector<int> slots_, next_;
  uint32_t rank_;
};

}  // namespace epccl::ep
