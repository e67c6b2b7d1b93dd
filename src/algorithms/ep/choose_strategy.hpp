// The cost model: which strategy a dispatch and its combine use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/cost_parameters.hpp"
#include "algorithms/ep/token_streams.hpp"
#include "topology/cluster.hpp"

namespace epccl::algorithms {

/// What the ranks of one node send to other nodes with one strategy.
struct NodeLoad {
  uint64_t rows = 0;
  uint64_t messages = 0;
};

struct StrategyChoice {
  Strategy strategy = Strategy::dedup;
  std::array<double, 3> seconds{};  // predicted, by strategy; < 0: not possible here
};

/// `loads[strategy][node]`; `scratch_needed[strategy]`: 0, or, where rows do not fit into scratch, the bytes with which they would. A pure
/// function of its arguments: equal on every rank. Error when rows fit with no strategy, or not with the `forced` one.
Result<StrategyChoice> choose_strategy(const topology::Cluster& cluster,
                                       const std::array<std::vector<NodeLoad>, 3>& loads,
                                       const std::array<uint64_t, 3>& scratch_needed, uint64_t row_bytes,
                                       const CostParameters& cost, std::optional<Strategy> forced);

}  // namespace epccl::algorithms
