#include "topo/forecast_plans.hpp"

#include <algorithm>

#include "algorithms/alltoall/local.hpp"

namespace epccl::tools {
namespace {

using algorithms::Algorithm;
using algorithms::Parameters;

/// Two_stage's rings hold so many chunks at least (two_stage_layout.cpp).
constexpr uint64_t chunks_per_ring = 4, rings = 2;

uint64_t divided_up(uint64_t value, uint64_t by) {
  return value / by + (value % by > 0 ? 1 : 0);
}

/// Nodes as numbers, so that a cluster need not be made to be asked about. Steps are counted in floating point: with chunks of one
/// byte they may be more than an integer holds.
struct Shape {
  uint64_t nodes = 0, local = 0;
};

double number(uint64_t value) {
  return static_cast<double>(value);
}

double local_steps(const Shape& shape, uint64_t bytes, const Parameters& parameters) {
  if (shape.local == 1) return 1;
  uint64_t rounds = 1;
  if (!parameters.direct || bytes <= parameters.eager_limit) {
    const uint64_t halves = parameters.direct ? 1 : 2;
    const uint64_t slots = local_scratch_bytes(static_cast<int>(shape.local), parameters);
    rounds = divided_up(bytes, std::max<uint64_t>(1, slots / (halves * shape.local)));
  }
  constexpr uint64_t steps_a_peer = 4;  // a copy out, a wait, a copy in, and another wait
  return 1 + number(rounds) * number(2 + steps_a_peer * (shape.local - 1));
}

double flat_steps(const Shape& shape, uint64_t bytes, const Parameters& parameters) {
  const uint64_t ranks = shape.nodes * shape.local;
  return number(ranks) * (2 * number(ranks - shape.local) + local_steps(shape, bytes, parameters));
}

/// Ranks of a node that send to other nodes.
uint64_t groups_of(const Shape& shape, const Parameters& parameters) {
  const auto carriers = static_cast<uint64_t>(parameters.carriers);
  return carriers == 0 ? shape.local : std::min(carriers, shape.local);
}

/// Of what one of them has for another node.
uint64_t chunks_of_a_message(const Shape& shape, uint64_t bytes, const Parameters& parameters) {
  const uint64_t slots = local_scratch_bytes(static_cast<int>(shape.local), parameters);
  const uint64_t ring = (parameters.scratch_bytes - std::min(parameters.scratch_bytes, slots)) / rings;
  const uint64_t chunk = std::max<uint64_t>(1, std::min(parameters.chunk_bytes, ring / chunks_per_ring));
  return divided_up(shape.local * divided_up(shape.local, groups_of(shape, parameters)) * bytes, chunk);
}

/// Of a node, between scratch and its ranks' buffers, for or from other nodes.
double pieces_of(const Shape& shape, uint64_t bytes, const Parameters& parameters) {
  const uint64_t others = shape.nodes - 1, groups = groups_of(shape, parameters);
  return number(others * (shape.local * shape.local - groups)) +
         number(others * groups) * number(chunks_of_a_message(shape, bytes, parameters));
}

double two_stage_steps(const Shape& shape, uint64_t bytes, const Parameters& parameters) {
  const uint64_t local = shape.local, others = shape.nodes - 1, groups = groups_of(shape, parameters);
  const bool shared = groups < local;
  const double items = number(others * groups) * number(chunks_of_a_message(shape, bytes, parameters));
  double steps = 2 * items + pieces_of(shape, bytes, parameters) * (shared ? 2 : 1);
  // A round has an item at least.
  const double signals_of_rounds = items * number(1 + 3 * (local - 1));
  const bool push = parameters.push && parameters.direct && local > 1;
  if (!push) steps += signals_of_rounds;
  if (shared) steps += signals_of_rounds;
  constexpr uint64_t waits_a_peer = 2;
  return number(shape.nodes) *
         (steps + number(local) * (local_steps(shape, bytes, parameters) + number(waits_a_peer * local)));
}

double steps_of(Algorithm algorithm, const Shape& shape, uint64_t bytes, const Parameters& parameters) {
  switch (algorithm) {
    case Algorithm::flat:
      return flat_steps(shape, bytes, parameters);
    case Algorithm::two_stage:
      return two_stage_steps(shape, bytes, parameters);
  }
  __builtin_unreachable();
}

uint64_t product(uint64_t value, uint64_t times) {
  constexpr uint64_t most = UINT64_MAX / 4;
  return value > most / times ? most : value * times;
}

Parameters coarser(Parameters parameters, uint64_t times) {
  for (uint64_t* const bytes : {&parameters.chunk_bytes, &parameters.send_window, &parameters.scratch_bytes})
    *bytes = product(*bytes, times);
  return parameters;
}

/// How much larger chunks have to be; 0: no chunks are large enough.
uint64_t coarseness_for(const Shape& shape, uint64_t bytes, const Parameters& parameters) {
  if (flat_steps(shape, bytes, parameters) > max_steps) return 0;
  const uint64_t message = bytes * shape.local * shape.local;
  for (uint64_t times = 1;; times *= 2) {
    const Parameters larger = coarser(parameters, times);
    if (two_stage_steps(shape, bytes, larger) <= max_steps) return times;
    if (larger.chunk_bytes >= 2 * message) return 0;
  }
}

Status too_many_steps(const Shape& shape, uint64_t bytes, const Parameters& parameters) {
  const Parameters whole =
      coarser(parameters, divided_up(bytes * shape.local * shape.local, parameters.chunk_bytes));
  const double steps = std::max(flat_steps(shape, bytes, parameters), two_stage_steps(shape, bytes, whole));
  uint64_t fewer = shape.nodes;
  while (fewer > 0 && coarseness_for({fewer, shape.local}, bytes, parameters) == 0) --fewer;
  const std::string mend = fewer > 0 ? fmt::format("up to {} nodes of {} ranks would do", fewer, shape.local)
                                     : std::string("fewer ranks on a node would do");
  return error(Code::invalid_argument,
               "plans of {} x {} ranks have {:.0f} steps at least, and up to {:.0f} are simulated; {}",
               shape.nodes, shape.local, steps, max_steps, mend);
}

}  // namespace

double estimated_steps(Algorithm algorithm, const topology::Cluster& cluster, uint64_t bytes_per_pair,
                       const Parameters& parameters) {
  const Shape shape{static_cast<uint64_t>(cluster.nodes()), static_cast<uint64_t>(cluster.max_local_size())};
  return steps_of(algorithm, shape, bytes_per_pair, parameters);
}

Result<AlltoallPlans> plans_for(const topology::Cluster& cluster, uint64_t bytes_per_pair, double cores,
                                bool on_gpus, const runtime::CommConfig& config) {
  AlltoallPlans plans;
  algorithms::CostParameters cost;  // as runtime::cost_parameters() has it
  cost.link_rate = config.link_rate;
  cost.cores_per_node = cores;
  Parameters parameters = config.parameters;
  parameters.direct = on_gpus || config.allow_direct;
  plans.choice = algorithms::choose(cluster, {bytes_per_pair}, cost, parameters,
                                    config.algorithm ? &*config.algorithm : nullptr, config.carriers);
  if (on_gpus) {  // AlltoallRunner::engine_plan()
    parameters = config.engine_parameters();
    parameters.direct = true;
    parameters.eager_limit = 0;
  }
  parameters.carriers = plans.choice.carriers;
  parameters.push = plans.choice.push;
  EPCCL_TRY(algorithms::check(cluster, parameters));
  const Shape shape{static_cast<uint64_t>(cluster.nodes()), static_cast<uint64_t>(cluster.max_local_size())};
  plans.coarseness = coarseness_for(shape, bytes_per_pair, parameters);
  if (plans.coarseness == 0) return too_many_steps(shape, bytes_per_pair, parameters);
  plans.library_chunk = parameters.chunk_bytes;
  plans.parameters = coarser(parameters, plans.coarseness);
  if (plans.coarseness > 1) {
    plans.chunks_as_one = number(chunks_of_a_message(shape, bytes_per_pair, parameters)) /
                          number(chunks_of_a_message(shape, bytes_per_pair, plans.parameters));
    plans.pieces_as_one =
        pieces_of(shape, bytes_per_pair, parameters) / pieces_of(shape, bytes_per_pair, plans.parameters);
  }
  return plans;
}

}  // namespace epccl::tools
