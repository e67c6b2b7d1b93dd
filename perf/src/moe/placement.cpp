#include "perf/src/moe/placement.hpp"

#include <algorithm>
#include <utility>

namespace epccl::perf::moe {

Placement::Placement(std::vector<int> node_of, uint32_t experts)
    : node_of_(std::move(node_of)), local_of_(node_of_.size()), experts_(experts) {
  members_.resize(static_cast<size_t>(*std::max_element(node_of_.begin(), node_of_.end())) + 1);
  for (size_t rank = 0; rank < node_of_.size(); ++rank) {
    std::vector<int>& members = members_[static_cast<size_t>(node_of_[rank])];
    local_of_[rank] = static_cast<int>(members.size());
    members.push_back(static_cast<int>(rank));
  }
}

int Placement::relay(int source, int node) const {
  if (node_of(source) == node) return source;
  const std::vector<int>& members = members_[static_cast<size_t>(node)];
  return members[static_cast<size_t>(local_of_[static_cast<size_t>(source)]) % members.size()];
}

}  // namespace epccl::perf::moe
