// Where ranks and experts are, as the library places them by default.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace epccl::perf::moe {

class Placement {
 public:
  /// `node_of`: of each rank. Experts are in contiguous blocks, as equal as possible.
  Placement(std::vector<int> node_of, uint32_t experts);

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  uint32_t experts() const { return experts_; }
  const std::vector<int>& node_of() const { return node_of_; }
  int node_of(int rank) const { return node_of_[static_cast<size_t>(rank)]; }
  int owner(int64_t expert) const {
    return static_cast<int>(static_cast<uint64_t>(expert) * node_of_.size() / experts_);
  }
  /// The rank of `node` on the rail of `source`: it relays what is for the node.
  int relay(int source, int node) const;

 private:
  std::vector<int> node_of_, local_of_;
  std::vector<std::vector<int>> members_;
  uint32_t experts_;
};

}  // namespace epccl::perf::moe
