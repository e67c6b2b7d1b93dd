#include "algorithms/alltoall/alltoall.hpp"

#include "algorithms/alltoall/flat.hpp"
#include "algorithms/alltoall/local.hpp"
#include "algorithms/alltoall/two_stage.hpp"
#include "algorithms/alltoall/two_stage_layout.hpp"

namespace epccl::algorithms {

Status check(const topology::Cluster& cluster, const Parameters& parameters) {
  const int local_size = cluster.max_local_size();
  const int slots_needed = 4 + 2 * local_size;
  if (slots_needed > plan::max_slots)
    return error(Code::invalid_usage, "{} ranks on one node need {} counters a rank; there are {}",
                 local_size, slots_needed, plan::max_slots);
  if (parameters.chunk_bytes == 0)
    return error(Code::invalid_argument, "EPCCL_CHUNK_SIZE must be at least 1");
  const uint64_t needed = two_stage_minimum_scratch(local_size, parameters);
  if (parameters.scratch_bytes < needed)
    return error(Code::invalid_argument,
                 "EPCCL_SCRATCH_SIZE {} is too small for {} ranks a node: at least {}{}",
                 parameters.scratch_bytes, local_size, needed,
                 parameters.direct ? fmt::format(" with EPCCL_EAGER_LIMIT {}", parameters.eager_limit) : "");
  return {};
}

plan::RankPlan build_alltoall(Algorithm algorithm, const topology::Cluster& cluster, const Exchange& exchange,
                              int rank, const Parameters& parameters) {
  switch (algorithm) {
    case Algorithm::flat:
      return build_flat(cluster, exchange, rank, parameters);
    case Algorithm::two_stage:
      return build_two_stage(cluster, exchange, rank, parameters);
  }
  __builtin_unreachable();
}

plan::Plan build_alltoall_everywhere(Algorithm algorithm, const topology::Cluster& cluster,
                                     const Exchange& exchange, const Parameters& parameters) {
  plan::Plan plan{cluster, to_string(algorithm), {}};
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    plan.ranks.push_back(build_alltoall(algorithm, cluster, exchange, rank, parameters));
  return plan;
}

}  // namespace epccl::algorithms
