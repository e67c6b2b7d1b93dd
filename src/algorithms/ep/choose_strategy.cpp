#include "algorithms/ep/choose_strategy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace epccl::algorithms {

const char* to_string(Strategy strategy) {
  switch (strategy) {
    case Strategy::flat:
      return "flat";
    case Strategy::gather:
      return "gather";
    case Strategy::dedup:
      return "dedup";
  }
  return "?";
}

// As alltoall's model (choose.cpp): the busiest node's wire and cores, which overlap but never wholly, and the latencies in a
// row. What is handed out inside a node is the same for every strategy, so it is left out.
//   wire   rows that leave the node * row / link rate
//   cores  messages * overhead + rows * row / copy rate * (pack + 2 socket); gather sends straight from the input
static double predict(Strategy strategy, const topology::Cluster& cluster, const std::vector<NodeLoad>& loads,
                      uint64_t row_bytes, const CostParameters& cost) {
  const double passes = strategy == Strategy::gather ? 2 : 3;
  double most = 0;
  for (const NodeLoad& load : loads) {
    const double bytes = static_cast<double>(load.rows) * static_cast<double>(row_bytes);
    const double wire = bytes / cost.known_link_rate();
    const double cores =
        (static_cast<double>(load.messages) * cost.message_overhead + passes * bytes / cost.copy_rate) /
        std::max(cost.cores_per_node, 0.01);
    most = std::max(most, overlapped(wire, cores));
  }
  const double hops = strategy == Strategy::flat ? 1 : 2;
  return most + (cluster.nodes() > 1 ? cost.network_latency : 0) + hops * cost.signal_latency;
}

Result<StrategyChoice> choose_strategy(const topology::Cluster& cluster,
                                       const std::array<std::vector<NodeLoad>, 3>& loads,
                                       const std::array<uint64_t, 3>& scratch_needed, uint64_t row_bytes,
                                       const CostParameters& cost, std::optional<Strategy> forced) {
  StrategyChoice choice;
  double best = -1;
  for (const Strategy strategy : {Strategy::dedup, Strategy::flat, Strategy::gather}) {
    const auto index = static_cast<size_t>(strategy);
    const bool fits = scratch_needed[index] == 0;
    choice.seconds[index] = fits ? predict(strategy, cluster, loads[index], row_bytes, cost) : -1;
    const bool allowed = fits && (!forced || *forced == strategy);
    if (!allowed || (best >= 0 && choice.seconds[index] >= best)) continue;
    best = choice.seconds[index];
    choice.strategy = strategy;
  }
  if (best >= 0) return choice;
  std::string others;
  uint64_t enough = UINT64_MAX;
  for (const Strategy strategy : {Strategy::dedup, Strategy::flat, Strategy::gather}) {
    const uint64_t needed = scratch_needed[static_cast<size_t>(strategy)];
    if (needed == 0)
      others += fmt::format("{}{}", others.empty() ? ", as they do with " : " or ", to_string(strategy));
    if (!forced || *forced == strategy) enough = std::min(enough, needed);
  }
  return error(Code::invalid_argument,
               "rows of {} bytes do not fit into scratch{}{}{}: raise EPCCL_SCRATCH_SIZE to {} bytes",
               row_bytes, forced ? " with strategy " : "", forced ? to_string(*forced) : "", others, enough);
}

}  // namespace epccl::algorithms
