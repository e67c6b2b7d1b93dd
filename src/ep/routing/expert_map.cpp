#include "ep/routing/expert_map.hpp"

namespace epccl::ep {
Result<ExpertMap> ExpertMap::make(const topology::Cluster& cluster, uint32_t experts,
                                  std::span<const int> expert_to_rank) {
  const auto ranks = static_cast<uint32_t>(cluster.ranks());
  if (experts == 0 || experts > most_experts)
    return error(Code::invalid_argument, "num_experts {} is not between 1 and {}", experts, most_experts);
  std::vector<std::vector<uint32_t>> of_rank(ranks);
  for (uint32_t expert = 0; expert < experts; ++expert) {
    const int rank = expert_to_rank.empty() ? static_cast<int>(uint64_t{expert} * ranks / experts)
                                            : expert_to_rank[expert];
    if (rank < 0 || rank >= cluster.ranks())
      return error(Code::invalid_argument, "expert_to_rank[{}] is {}, but there are {} ranks", expert, rank,
                   ranks);
    of_rank[static_cast<size_t>(rank)].push_back(expert);
  }
  ExpertMap map;
  map.places_.resize(experts);
  map.first_.resize(ranks);
  map.count_.resize(ranks);
  for (int node = 0; node < cluster.nodes(); ++node) {
    auto& listed = map.node_experts_.emplace_back();
    for (const int rank : cluster.members(node)) {
      const auto& own = of_rank[static_cast<size_t>(rank)];
      map.first_[static_cast<size_t>(rank)] = static_cast<uint32_t>(listed.size());
      map.count_[static_cast<size_t>(rank)] = static_cast<uint32_t>(own.size());
      for (const uint32_t expert : own) {
        map.places_[expert] = {rank, node, static_cast<uint32_t>(listed.size())};
        listed.push_back(expert);
      }
    }
  }
  return map;
}

}  // namespace epccl::ep
