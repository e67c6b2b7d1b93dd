#include "runtime/executor/counter_values.hpp"

namespace epccl::runtime {

Status check_number(uint64_t sequence) {
  if (sequence <= last_call) return {};
  return error(Code::invalid_usage,
               "call {}: the {} calls of this communicator are used up: others need another one", sequence,
               last_call);
}

Status check_values(const plan::RankPlan& plan) {
  for (const plan::Step& step : plan.steps)
    if (step.value >> value_bits != 0)
      return error(Code::invalid_usage,
                   "rank {}: a call in more than {} rounds: raise EPCCL_SCRATCH_SIZE, or move less at once",
                   plan.rank, (1U << value_bits) - 1);
  return {};
}

}  // namespace epccl::runtime
