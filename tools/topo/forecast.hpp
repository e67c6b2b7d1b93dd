// What an alltoall would take on a cluster of like machines, flat and two-stage, by simulation of the library's own plans.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "plan/simulator.hpp"
#include "topology/rail_plan.hpp"

namespace epccl::tools {

/// The machine as the simulator wants it, and what had to be assumed for that.
struct ClusterModel {
  plan::SimulationModel simulation;
  bool rdma = false;
  std::vector<std::string> assumptions;  // sentences for people
};

/// Links: the rail groups of the plan with the rates they have when all send. Copies between GPUs: their NVLink or xGMI
/// connection, else the slowest known PCIe link on the way. What the machine does not tell is assumed, and said.
ClusterModel cluster_model(const topology::Machine& machine, const topology::RailPlan& plan);

struct Prediction {
  uint64_t bytes_per_pair = 0;
  double flat_seconds = 0, two_stage_seconds = 0;
  uint64_t flat_messages = 0, two_stage_messages = 0;  // of one rank, the busiest
};

struct Forecast {
  int nodes = 0, ranks_per_node = 0;
  std::vector<std::string> assumptions;
  std::vector<Prediction> predictions;
};

/// Sizes that a forecast is made for.
std::vector<uint64_t> forecast_sizes();

/// Simulates alltoall of every size with both algorithms. Takes well below a second a size for 64 ranks, and grows with their
/// square. Error: more than 1024 ranks; what the simulator refuses.
Result<Forecast> make_forecast(const topology::Machine& machine, const topology::RailPlan& plan);

std::string format_forecast(const Forecast& forecast);
nlohmann::ordered_json forecast_json(const Forecast& forecast);

}  // namespace epccl::tools
