// What an alltoall would take on a cluster of like machines, flat and two-stage, by simulation of the library's own plans.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "algorithms/alltoall/alltoall.hpp"
#include "base/status.hpp"
#include "plan/simulator.hpp"
#include "runtime/comm/comm_config.hpp"
#include "topology/rail_plan.hpp"

namespace epccl::tools {

/// The machine as the simulator wants it, and what had to be assumed for that.
struct ClusterModel {
  plan::SimulationModel simulation;
  bool rdma = false;
  double cores = 1;                      // that a node's ranks have, as the library's cost model counts them
  std::vector<std::string> assumptions;  // sentences for people
};

/// Links: the rail groups of the plan with the rates they have when all send. Copies between GPUs: their NVLink or xGMI
/// connection, else the slowest known PCIe link on the way. `node_rate` (EPCCL_LINK_RATE, bytes/s): what the links of a node have
/// together, whatever the machine tells; 0: not set. What the machine does not tell is assumed, and said.
ClusterModel cluster_model(const topology::Machine& machine, const topology::RailPlan& plan,
                           double node_rate = 0);

struct Prediction {
  uint64_t bytes_per_pair = 0;
  double flat_seconds = 0, two_stage_seconds = 0;
  uint64_t flat_messages = 0, two_stage_messages = 0;           // of one rank, the busiest
  algorithms::Algorithm library = algorithms::Algorithm::flat;  // what the library takes
  uint64_t chunk_bytes = 0;                                     // of two_stage
  uint64_t library_chunk_bytes = 0;  // smaller where the library's own plan has too many steps
};

struct Forecast {
  int nodes = 0, ranks_per_node = 0;
  std::vector<std::string> assumptions;
  std::vector<Prediction> predictions;
};

/// Sizes that a forecast is made for.
std::vector<uint64_t> forecast_sizes();

/// Simulates alltoall of every size with both algorithms, by the plans that the library runs with `config` (forecast_plans.hpp). Takes
/// well below a second a size for 64 ranks, at most some seconds and 0.7 GB. Error: plans of more steps than are simulated; what the
/// library or the simulator refuses; memory that is not to be had.
Result<Forecast> make_forecast(const topology::Machine& machine, const topology::RailPlan& plan,
                               const runtime::CommConfig& config);

/// An SVG picture (plan/printer.hpp) of the alltoall that the library takes for blocks of `bytes_per_pair`, simulated as in make_forecast().
/// Errors: those, and plans of more than `most_marks` steps, which no one could look at.
inline constexpr size_t most_marks = 100'000;
Result<std::string> draw_alltoall(const topology::Machine& machine, const topology::RailPlan& plan,
                                  const runtime::CommConfig& config, uint64_t bytes_per_pair);

std::string format_forecast(const Forecast& forecast);
nlohmann::ordered_json forecast_json(const Forecast& forecast);

}  // namespace epccl::tools
