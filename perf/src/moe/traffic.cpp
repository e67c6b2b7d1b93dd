#include "perf/src/moe/traffic.hpp"

#include <algorithm>

namespace epccl::perf::moe {
namespace {

/// use(rank, entries): the ranks that own experts of a token, each once, and how many of these experts.
template <typename Use>
void for_each_owner(std::span<const int64_t> experts, const Placement& placement, Use use) {
  int owners[EPCCL_EP_MAX_TOPK];
  size_t count = 0;
  for (const int64_t expert : experts) {
    if (expert >= 0) owners[count++] = placement.owner(expert);
  }
  std::sort(owners, owners + count);
  for (size_t first = 0, last = 0; first < count; first = last) {
    while (last < count && owners[last] == owners[first]) ++last;
    use(owners[first], static_cast<uint64_t>(last - first));
  }
}

/// use(source, experts of a token)
template <typename Use>
void for_each_token(const std::vector<TopkTable>& tables, Use use) {
  for (size_t source = 0; source < tables.size(); ++source) {
    for (uint32_t token = 0; token < tables[source].tokens; ++token)
      use(static_cast<int>(source), tables[source].row(token));
  }
}

uint64_t sum(const CountMatrix& matrix) {
  uint64_t total = 0;
  for (int s = 0; s < matrix.ranks(); ++s) total += matrix.sent_by(s);
  return total;
}

}  // namespace

const char* to_string(Layout layout) {
  switch (layout) {
    case Layout::flat:
      return "flat";
    case Layout::expert_major:
      return "expert-major";
    default:
      return "rank-major";
  }
}

const char* to_string(epcclEpStrategy_t strategy) {
  switch (strategy) {
    case EPCCL_EP_STRATEGY_FLAT:
      return "flat";
    case EPCCL_EP_STRATEGY_GATHER:
      return "gather";
    case EPCCL_EP_STRATEGY_DEDUP:
      return "dedup";
    default:
      return "auto";
  }
}

CountMatrix token_copies(const std::vector<TopkTable>& tables, const Placement& placement, Copies copies) {
  CountMatrix matrix(placement.ranks());
  for_each_token(tables, [&](int source, std::span<const int64_t> experts) {
    for_each_owner(experts, placement, [&](int rank, uint64_t entries) {
      matrix.at(source, rank) += copies == Copies::expert ? entries : 1;
    });
  });
  return matrix;
}

CountMatrix network_rows(const std::vector<TopkTable>& tables, const Placement& placement,
                         epcclEpStrategy_t strategy) {
  CountMatrix matrix(placement.ranks());
  std::vector<char> reached(static_cast<size_t>(placement.nodes()));
  for_each_token(tables, [&](int source, std::span<const int64_t> experts) {
    const bool gather = strategy == EPCCL_EP_STRATEGY_GATHER;
    std::fill(reached.begin(), reached.end(), gather ? 1 : 0);
    for_each_owner(experts, placement, [&](int rank, uint64_t) {
      const int node = placement.node_of(rank);
      if (node == placement.node_of(source)) return;
      if (strategy == EPCCL_EP_STRATEGY_FLAT)
        ++matrix.at(source, rank);
      else
        reached[static_cast<size_t>(node)] = 1;
    });
    for (int node = 0; node < placement.nodes(); ++node) {
      const bool there = reached[static_cast<size_t>(node)] != 0 && node != placement.node_of(source);
      if (there) ++matrix.at(source, placement.relay(source, node));
    }
  });
  return matrix;
}

LinkRows link_rows(const std::vector<TopkTable>& tables, const Placement& placement,
                   epcclEpStrategy_t strategy, Layout layout) {
  LinkRows rows;
  for_each_token(tables, [&](int source, std::span<const int64_t> experts) {
    for_each_owner(experts, placement, [&](int rank, uint64_t entries) {
      const bool straight =
          strategy == EPCCL_EP_STRATEGY_FLAT && placement.node_of(rank) != placement.node_of(source);
      const int from = straight ? rank : placement.relay(source, placement.node_of(rank));
      (from == rank ? rows.local : rows.node) += copies_of(layout) == Copies::expert ? entries : 1;
    });
  });
  rows.network = sum(network_rows(tables, placement, strategy));
  return rows;
}

double imbalance(const CountMatrix& copies) {
  uint64_t most = 0;
  for (int rank = 0; rank < copies.ranks(); ++rank) most = std::max(most, copies.received_by(rank));
  const uint64_t total = sum(copies);
  return total == 0 ? 1 : static_cast<double>(most) * copies.ranks() / static_cast<double>(total);
}

uint64_t total_entries(const std::vector<TopkTable>& tables) {
  uint64_t entries = 0;
  for (const TopkTable& table : tables) {
    entries += static_cast<uint64_t>(std::count_if(table.experts.begin(), table.experts.end(),
                                                   [](int64_t expert) { return expert >= 0; }));
  }
  return entries;
}

}  // namespace epccl::perf::moe
