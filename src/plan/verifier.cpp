#include "plan/verifier.hpp"

#include <algorithm>

#include "plan/data_flow.hpp"
#include "plan/step_graph.hpp"
#include "plan/well_formed.hpp"

namespace epccl::plan {

Status verify(const Plan& plan, std::span<const Transfer> expected, VerifyReport* report) {
  return verify(plan, expected, {}, {}, report);
}

Status verify(const Plan& plan, std::span<const Transfer> expected, std::span<const RowSum> sums,
              std::span<const uint64_t> inputs, VerifyReport* report) {
  EPCCL_ASSIGN(const std::vector<uint64_t> read, input_sizes(plan, expected, sums));
  EPCCL_TRY(well_formed(plan, inputs.empty() ? read : inputs));
  EPCCL_ASSIGN(const StepGraph graph, StepGraph::build(plan));
  if (report != nullptr) {
    *report = {};
    report->steps = graph.size();
    for (const RankPlan& rank : plan.ranks) report->dependencies += rank.dependencies.size();
    report->links = count_link_bytes(plan);
  }
  EPCCL_ASSIGN(const StepOrder order, order_steps(graph));
  if (report != nullptr && graph.size() > 0) report->depth = std::ranges::max(order.depth) + 1;
  DataFlow flow(graph, order);
  EPCCL_TRY(flow.run());
  return flow.check_outputs(expected, sums);
}

}  // namespace epccl::plan
