// The cost model that picks flat or two_stage, and how many ranks of a node share its messages.
#pragma once

#include "algorithms/alltoall/alltoall.hpp"
#include "algorithms/cost_parameters.hpp"

namespace epccl::algorithms {

/// What is moved, on average: enough to choose by, and known to every rank.
struct Workload {
  uint64_t bytes_per_pair = 0;  // mean over rank pairs
};

struct Choice {
  Algorithm algorithm = Algorithm::flat;
  int carriers = 0;    // for Parameters::carriers
  bool push = false;   // for Parameters::push
  double seconds = 0;  // predicted
  double flat_seconds = 0, two_stage_seconds = 0;
};

/// What one rank has to send in a group of sends and receives, as far as it may be carried.
struct GroupSends {
  uint64_t messages = 0, bytes = 0;
  int nodes = 0;  // they go to
};

/// Longer messages are not worth carrying: measured, they lose in copies and in waiting what they gain.
inline constexpr uint64_t largest_worth_carrying = 4 << 10;

/// Whether a rank's messages are better carried by its node (runtime/messages/carrying.hpp) than sent one by one, provided that
/// others have as many: then each rank writes once to each node.
bool carrying_pays(const GroupSends& sends, const CostParameters& cost);

/// Predicted time of one algorithm with `carriers` (0 = all).
double predict(Algorithm algorithm, int carriers, const topology::Cluster& cluster, const Workload& workload,
               const CostParameters& cost, const Parameters& parameters);

/// The best; `forced` restricts the algorithm, `forced_carriers` >= 0 the carriers.
Choice choose(const topology::Cluster& cluster, const Workload& workload, const CostParameters& cost,
              const Parameters& parameters, const Algorithm* forced, int forced_carriers);

}  // namespace epccl::algorithms
