#include "expected.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace epccl::tests {

Expected::Expected(const Problem& problem)
    : problem_(problem),
      rows_(static_cast<size_t>(problem.ranks())),
      offset_(problem.experts),
      kept_(problem.experts),
      dropped_(problem.experts),
      origins_(static_cast<size_t>(problem.ranks())) {
  for (const auto& table : problem.topk) slot_.emplace_back(table.size(), none);
  if (problem.by_expert())
    place_by_expert();
  else
    place_by_token();
  for (int rank = 0; rank < problem.ranks(); ++rank) origins_[static_cast<size_t>(rank)].resize(rows(rank));
  for (int source = 0; source < problem.ranks(); ++source)
    for (uint32_t token = 0; token < problem.tokens[static_cast<size_t>(source)]; ++token)
      for (uint32_t position = 0; position < problem.k; ++position) {
        const int64_t expert =
            problem.topk[static_cast<size_t>(source)][size_t{token} * problem.k + position];
        if (slot(source, token, position) != none)
          origins_[static_cast<size_t>(problem.owner[static_cast<size_t>(expert)])]
                  [slot(source, token, position)] = {source, token};
      }
}

void Expected::place_by_token() {
  const bool fixed = problem_.layout == EPCCL_EP_LAYOUT_RANK_MAJOR;
  for (int rank = 0; rank < problem_.ranks(); ++rank) {
    uint32_t next = 0;
    for (int source = 0; source < problem_.ranks(); ++source) {
      if (fixed) next = static_cast<uint32_t>(source) * problem_.max_tokens;
      for (uint32_t token = 0; token < problem_.tokens[static_cast<size_t>(source)]; ++token) {
        bool any = false;
        for (uint32_t position = 0; position < problem_.k; ++position) {
          const size_t at = size_t{token} * problem_.k + position;
          const int64_t expert = problem_.topk[static_cast<size_t>(source)][at];
          if (expert < 0 || problem_.owner[static_cast<size_t>(expert)] != rank) continue;
          slot_[static_cast<size_t>(source)][at] = next;
          ++kept_[static_cast<size_t>(expert)];
          any = true;
        }
        if (any) ++next;
      }
    }
    rows_[static_cast<size_t>(rank)] =
        fixed ? static_cast<uint32_t>(problem_.ranks()) * problem_.max_tokens : next;
  }
}

void Expected::place_by_expert() {
  for (uint32_t expert = 0; expert < problem_.experts; ++expert) {
    uint32_t& end = rows_[static_cast<size_t>(problem_.owner[expert])];
    offset_[expert] = end;
    uint32_t count = 0;
    for (int source = 0; source < problem_.ranks(); ++source) {
      const auto& table = problem_.topk[static_cast<size_t>(source)];
      for (size_t at = 0; at < table.size(); ++at) {
        if (table[at] != static_cast<int64_t>(expert)) continue;
        const bool fits = problem_.capacity == 0 || count < problem_.capacity;
        if (fits) slot_[static_cast<size_t>(source)][at] = end + count;
        ++(fits ? kept_ : dropped_)[expert];
        ++count;
      }
    }
    if (problem_.capacity > 0) count = problem_.pad ? problem_.capacity : std::min(count, problem_.capacity);
    while (count % problem_.alignment != 0) ++count;
    end += count;
  }
}

float Expected::processed(int64_t expert, float value) const {
  const int factor =
      problem_.by_expert() ? static_cast<int>(expert) : problem_.owner[static_cast<size_t>(expert)];
  return rounded(problem_.type, value * (1.0F + static_cast<float>(factor % 7) / 3.0F));
}

float Expected::combined(int source, uint32_t token, uint32_t h, bool weighted) const {
  std::vector<std::tuple<int, int, uint32_t, int64_t>> uses;  // node, rank, position: the order of addition
  for (uint32_t position = 0; position < problem_.k; ++position) {
    const int64_t expert = problem_.topk[static_cast<size_t>(source)][size_t{token} * problem_.k + position];
    if (slot(source, token, position) == none) continue;
    const int rank = problem_.owner[static_cast<size_t>(expert)];
    uses.emplace_back(problem_.node_of(rank), rank, position, expert);
  }
  std::ranges::sort(uses);
  float total = 0, of_node = 0, of_rank = 0;
  for (size_t i = 0; i < uses.size(); ++i) {
    const auto& [node, rank, position, expert] = uses[i];
    const bool last_of_rank = i + 1 == uses.size() || std::get<1>(uses[i + 1]) != rank;
    const bool last_of_node = i + 1 == uses.size() || std::get<0>(uses[i + 1]) != node;
    volatile float value =
        processed(expert, token_value(source, token, h));  // volatile: no fused multiply-add
    if (weighted)
      value = value * problem_.weights[static_cast<size_t>(source)][size_t{token} * problem_.k + position];
    if (problem_.by_expert() || last_of_rank) of_rank += value;
    if (last_of_rank) {
      of_node += rounded(problem_.type, of_rank);
      of_rank = 0;
    }
    if (last_of_node) {
      total += rounded(problem_.type, of_node);
      of_node = 0;
    }
  }
  return rounded(problem_.type, total);
}

uint64_t Expected::network_rows(int source, epcclEpStrategy_t strategy) const {
  uint64_t rows = 0;
  for (uint32_t token = 0; token < problem_.tokens[static_cast<size_t>(source)]; ++token) {
    std::set<int> reached;  // ranks or nodes
    for (uint32_t position = 0; position < problem_.k; ++position) {
      const int64_t expert =
          problem_.topk[static_cast<size_t>(source)][size_t{token} * problem_.k + position];
      if (expert < 0) continue;
      const int rank = problem_.owner[static_cast<size_t>(expert)], node = problem_.node_of(rank);
      if (node != problem_.node_of(source)) reached.insert(strategy == EPCCL_EP_STRATEGY_FLAT ? rank : node);
    }
    rows += strategy == EPCCL_EP_STRATEGY_GATHER ? problem_.ranks_per_node.size() - 1 : reached.size();
  }
  return rows;
}

}  // namespace epccl::tests
